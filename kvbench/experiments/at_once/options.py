"""Options of the experiments in which a number of requests is there at once: ``pressure``, ``fragmentation`` and ``sharing``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from kvbench.config.settings import Setting, Settings, split_names
from kvbench.workloads.lengths import parse_lengths

Auto = Literal["auto"]
Arm = Literal["ample", "recompute", "swap", "reserve"]

BATCH_EXPERIMENTS = frozenset({"pressure", "fragmentation", "sharing"})
BATCH = Setting("Requests at once", experiments=BATCH_EXPERIMENTS)
BATCH_TOKENS = replace(BATCH, unit="tokens", metavar="N|SPEC")
PRESSURE = replace(BATCH, experiments=frozenset({"pressure"}))
PRESSURE_TOKENS, PRESSURE_GIB = replace(PRESSURE, unit="tokens"), replace(PRESSURE, unit="GiB", runners=frozenset({"engine"}))
VICTIM = replace(PRESSURE, runners=frozenset({"engine"}))
HISTORY = replace(PRESSURE_TOKENS, runners=frozenset({"engine"}))
FRAGMENTATION = replace(BATCH, experiments=frozenset({"fragmentation"}))
FRAGMENTATION_TOKENS, FRAGMENTATION_FILE = replace(FRAGMENTATION, unit="tokens"), replace(FRAGMENTATION, metavar="FILE")
SHARING = replace(BATCH, experiments=frozenset({"sharing"}))
SAMPLED = replace(BATCH, experiments=frozenset({"pressure", "sharing"}))


def read_lengths(value: object) -> object:
    """A number stays one; ``"256"`` becomes one; a distribution is checked and stays as it was said."""
    if not isinstance(value, (int, str)) or value == "auto":
        return value
    lengths = parse_lengths(str(value))
    return value if lengths.fixed is None else lengths.fixed


LengthSpec = Annotated[int | str, BeforeValidator(read_lengths)]
"""A length, a distribution of lengths (:mod:`kvbench.workloads.lengths`), or ``auto``."""

REQUESTS = {"pressure": 16, "fragmentation": 32, "sharing": 4}
PROMPTS: dict[str, int | str] = {"pressure": 128, "fragmentation": "lognormal:320:0.8", "sharing": 250}
OUTPUTS: dict[str, int | str] = {"pressure": 128, "fragmentation": "lognormal:96:0.8", "sharing": 64}
POOLS = {"pressure": 2048, "fragmentation": 8192, "sharing": 21520}
TEMPERATURES = {"pressure": 0.0, "sharing": 1.0}
"""What ``auto`` is in each experiment."""


class BatchConfig(Settings):
    """The requests, and what each experiment does with them."""

    requests: Annotated[Annotated[int, Field(ge=1, le=100_000)] | Auto, BATCH] = Field(
        "auto", description="Requests, all sent at the start; auto: 16 in pressure, 32 in fragmentation, 4 in sharing."
    )
    prompt_tokens: Annotated[LengthSpec, BATCH_TOKENS] = Field(
        "auto",
        description="Prompt of each request: a length, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA; auto: 128 in pressure, "
        "lognormal:320:0.8 in fragmentation, 250 in sharing.",
    )
    temperature: Annotated[Annotated[float, Field(ge=0, le=100)] | Auto, SAMPLED] = Field(
        "auto",
        description="Of sampling, a seed for each answer; 0 takes the most likely token; auto: 0 in pressure, 1 in sharing.",
    )

    arm: Annotated[tuple[Arm, ...], BeforeValidator(split_names), PRESSURE] = Field(
        (),
        description="What happens when KV runs out; the first is the reference. ample has a pool that never does, reserve keeps room for "
        "the longest output from the start; on vllm there are ample and recompute. Repeatable; none: all.",
    )
    swap_gib: Annotated[Annotated[float, Field(gt=0, le=1e6)] | Auto, PRESSURE_GIB] = Field(
        "auto", description="Host memory that preempted requests are swapped to; auto: enough for all of them."
    )
    victim: Annotated[Literal["newest", "least-computed"], VICTIM] = Field("newest", description="Who gives way when blocks run out.")
    context: Annotated[int | None, HISTORY] = Field(
        None,
        ge=16,
        le=10**6,
        description="In place of --requests and lengths: the history at which the second of two requests is preempted.",
    )

    max_length: Annotated[int, FRAGMENTATION_TOKENS] = Field(
        2048, ge=2, le=10**6, description="What is reserved for every request where its length is not known; none is longer."
    )
    block_sizes: Annotated[tuple[Annotated[int, Field(ge=1, le=4096)], ...], BeforeValidator(split_names), FRAGMENTATION_TOKENS] = Field(
        (1, 16, 64, 256), min_length=1, description="Block sizes of the paged arms."
    )
    lengths: Annotated[Path | None, FRAGMENTATION_FILE] = Field(
        None, description="Your own lengths in place of drawn ones: a line a request, CSV or JSON, with prompt_tokens and output_tokens."
    )

    n: Annotated[int, SHARING] = Field(4, ge=1, le=1024, description="Samples of each prompt.")
    beams: Annotated[int, SHARING] = Field(4, ge=1, le=1024, description="Beams of each prompt's search.")
