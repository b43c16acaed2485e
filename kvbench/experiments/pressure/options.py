"""The options of ``pressure``: the requests, and what happens when KV runs out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from kvbench.config.settings import Auto, each_once, split_names
from kvbench.experiments.at_once.options import REQUESTS, SampledOptions
from kvbench.experiments.pressure.history import arrange

Arm = Literal["ample", "recompute", "swap", "reserve"]
ON_ENGINE = replace(REQUESTS, runners=frozenset({"engine"}), basic=False)
HISTORY, SWAP = replace(ON_ENGINE, unit="tokens", basic=True), replace(ON_ENGINE, unit="GiB")
REPLACED = ("requests", "prompt_tokens", "output_tokens", "kv_tokens", "concurrency", "rate", "victim")
"""Options that say what ``context`` says by itself."""


class PressureOptions(SampledOptions):
    """A run of ``pressure``: its pool is so small that KV runs out."""

    autos: ClassVar[Mapping[str, int | str]] = {
        "requests": 16,
        "prompt_tokens": 128,
        "output_tokens": 128,
        "kv_tokens": 2048,
        "temperature": 0,
    }
    needs_small_pool: ClassVar[bool] = True
    roomy_arm: ClassVar[str] = "ample"
    compares_outputs: ClassVar[bool] = True

    arm: Annotated[tuple[Arm, ...], BeforeValidator(split_names), each_once("arm"), REQUESTS] = Field(
        (),
        description="What happens when KV runs out; the first is the reference. ample has a pool that never does, reserve keeps room for "
        "the longest output from the start; on vllm there are ample and recompute. Repeatable; none: all.",
    )
    swap_gib: Annotated[Annotated[float, Field(gt=0, le=1e6)] | Auto, SWAP] = Field(
        "auto", description="Host memory that preempted requests are swapped to; auto: enough for all of them."
    )
    victim: Annotated[Literal["newest", "least-computed"], ON_ENGINE] = Field(
        "newest", description="Which request is preempted when blocks run out."
    )
    context: Annotated[int | None, HISTORY] = Field(
        None,
        ge=16,
        le=10**6,
        description="Instead of --requests and lengths: the history at which the second of two requests is preempted.",
    )

    @property
    def arms(self) -> tuple[str, ...]:
        """As they were named, or all that the runner has."""
        own = () if self.runner == "vllm" else ("swap",) if self.context is not None else ("swap", "reserve")
        return self.arm or ("ample", "recompute", *own)

    @property
    def copies(self) -> bool:
        """Whether any arm swaps."""
        return "swap" in self.arms

    @property
    def swap_size(self) -> float | Auto:
        """As it was given."""
        return self.swap_gib

    @property
    def history(self) -> int | None:
        """With ``context``, what recompute and restore take at least is told too."""
        return self.context

    @property
    def pool_tokens(self) -> int:
        """Size of the device pool; with ``context``, the one that runs short at that history."""
        if self.context is not None:
            return arrange(self.context, self.pool_block_size, self.step_tokens).pool_blocks * self.pool_block_size
        return super().pool_tokens

    @property
    def batch_requests(self) -> int:
        """Two with a ``context``."""
        return 2 if self.context is not None else super().batch_requests

    @property
    def shorter(self) -> str:
        """What to do about a request that is too long, for messages."""
        return "lower --context" if self.context is not None else super().shorter

    @model_validator(mode="after")
    def _runner_has_arms(self) -> Self:
        wrong = set(self.arms) - {"ample", "recompute"}
        if self.runner == "vllm" and wrong:
            raise ValueError(f"--arm {min(wrong)}: vLLM has ample and recompute only")
        if self.context is not None and "reserve" in self.arms:
            raise ValueError("--arm reserve: nothing runs short there, so --context has no history to bring back; leave the arm out")
        return self

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        if "swap" not in self.arms:
            reasons["swap_gib"] = "no arm swaps (--arm swap)"
        if self.context is not None:
            reasons |= dict.fromkeys(REPLACED, "--context says what the two requests are")
        return reasons
