"""The options of ``fragmentation``: the requests, what is reserved for them, and the blocks they are paged in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from kvbench.config.settings import BlockTokens, each_once, split_names
from kvbench.experiments.at_once.options import REQUESTS, AtOnceOptions
from kvbench.models.units import ceil_div

TOKENS, FILE = replace(REQUESTS, unit="tokens"), replace(REQUESTS, metavar="FILE")


class FragmentationOptions(AtOnceOptions):
    """A run of ``fragmentation``: in its pool not all requests find room at once."""

    autos: ClassVar[Mapping[str, int | str]] = {
        "requests": 32,
        "prompt_tokens": "lognormal:320:0.8",
        "output_tokens": "lognormal:96:0.8",
        "kv_tokens": 8192,
    }
    shorter: ClassVar[str] = "lower --max-length"

    max_length: Annotated[int, TOKENS] = Field(
        2048, ge=2, le=10**6, description="Slots reserved for a request of unknown length; none is longer."
    )
    block_sizes: Annotated[tuple[BlockTokens, ...], BeforeValidator(split_names), each_once("block size"), TOKENS] = Field(
        (1, 16, 64, 256), min_length=1, description="Block sizes of the paged arms."
    )
    lengths: Annotated[Path | None, FILE] = Field(
        None, description="Your own lengths instead of drawn ones: a line a request, CSV or JSON, with prompt_tokens and output_tokens."
    )

    @property
    def arms(self) -> tuple[str, ...]:
        """Two reservations, and one for each block size."""
        return ("reserve-max", "reserve-own", *(f"paged-{size}" for size in self.block_sizes))

    @model_validator(mode="after")
    def _longest_fits_every_arm(self) -> Self:
        """The longest request must fit the pool alone, whatever the block size."""
        unit = self.pool_block_size
        tokens = self.pool_tokens // unit * unit  # what the pool of the other arms holds, in whole blocks
        for size in (unit, *self.block_sizes):
            blocks, pool = ceil_div(self.max_length, size), tokens // size
            if pool == 0:
                raise ValueError(f"--block-sizes {size}: the pool (--kv-tokens {self.pool_tokens}) holds no block of it")
            if blocks > pool:
                raise ValueError(
                    f"--max-length {self.max_length} takes {blocks:,} blocks of {size}, and the pool (--kv-tokens {self.pool_tokens}) has "
                    f"{pool:,}; --kv-tokens {ceil_div(blocks * size, unit) * unit} holds one request"
                )
        prompt, output = self.prompt_lengths.fixed, self.output_lengths.fixed
        if self.lengths is None and prompt is not None and prompt + (output or 1) > self.max_length:
            what = f"{prompt} of --prompt-tokens and {output or 1} of output"
            raise ValueError(f"--max-length {self.max_length} is less than {what}; raise it")
        return self

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        if self.lengths is not None:
            reasons |= dict.fromkeys(("requests", "prompt_tokens", "output_tokens"), "--lengths brings its own requests")
        reasons["block_size"] = "the arms have block sizes of their own (--block-sizes)"
        return reasons | dict.fromkeys(("rate", "concurrency"), "all requests are there at the start")
