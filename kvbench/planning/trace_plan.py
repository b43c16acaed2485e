"""A plan for a trace: what a pool of any size hits, what two tiers of the sizes asked for give, and when it is that prompts come again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from kvbench.config.common import DEFAULT_BLOCK_SIZE
from kvbench.config.settings import given_or
from kvbench.errors import UsageError
from kvbench.models.kv_size import kv_size
from kvbench.models.units import ceil_div
from kvbench.planning.config import PlanConfig
from kvbench.planning.sizes import INSTEAD
from kvbench.planning.trace_accesses import block_trace, footprints
from kvbench.planning.windows import ReuseTimes, Window
from kvbench.runners.profiles import PROFILES
from kvbench.runners.simulator.block_trace import Integers
from kvbench.runners.simulator.replay import most_hits
from kvbench.runners.simulator.simulator import BlockSimulator, CacheSizes, Footprint, TierTokens, roomy_host
from kvbench.runners.simulator.stack_distance import HitCurve, curve_of, smallest_capacities
from kvbench.workloads.prompt_text import PromptText
from kvbench.workloads.traces.trace import UNKNOWN, Trace, load_trace
from kvbench.workloads.traces.tracefile import TraceFile

FORMAT = "kvbench.trace-plan/1"
SHARES = (0.5, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Shares of the bound for which the smallest pool is told."""

CURVE_POINTS = 200


@dataclass(frozen=True, slots=True)
class Pool:
    """A device pool and the share of block accesses that hit in it; ``share``: of what a pool without a limit hits."""

    blocks: int
    tokens: int
    gib: float
    hit_rate: float
    share: float | None


@dataclass(frozen=True, slots=True)
class Arm:
    """Prompt tokens of all requests by tier. ``host_tokens`` ``None``: no host tier.

    ``exact``: certain for requests sent one at a time; else it depends on when a background job evicts.
    """

    name: str
    host_tokens: int | None
    prompt: int
    device: int
    host: int
    computed: int
    exact: bool


@dataclass(frozen=True, slots=True)
class AtPool:
    """What one pool gives. ``too_large``: requests that do not fit it, which a server refuses; the arms leave them out."""

    device_tokens: int
    block_size: int
    chunk_tokens: int
    too_large: int
    arms: tuple[Arm, ...]


@dataclass(frozen=True, slots=True)
class TracePlan:
    """A plan for one trace; tokens in sum, rates as shares of block accesses. ``None`` is unknown, or was not asked for.

    ``bound``: the hit rate of a pool without a limit. ``optimum``: what any order of eviction could hit at most in the pool asked for,
    beside ``lru``. ``reuse_age_s``: after how many seconds blocks come again: median, p90, p99. ``left_out``: requests that were longer
    than asked for.
    """

    trace: str
    profile: str
    model: str | None
    bytes_per_token: int
    requests: int
    left_out: int
    prompt_tokens: int
    output_tokens: int
    longest_tokens: int
    span_s: float | None
    block_size: int
    accesses: int
    distinct: int
    bound: float
    curve: tuple[Pool, ...]
    smallest: tuple[Pool, ...]
    reuse_age_s: tuple[float, ...] | None
    lru: Pool | None
    optimum: float | None
    at_pool: AtPool | None
    window_s: float | None
    windows: tuple[Window, ...]

    def to_json(self) -> dict[str, Any]:
        """The plan as plain objects, with its format and version; the names of the fields are the keys."""
        return {"format": FORMAT, **asdict(self)}


def plan_trace(config: PlanConfig) -> TracePlan:
    """The plan for ``--trace``; ``UsageError``: the trace or the model cannot be used, or the sizes do not go together."""
    trace = _load(config)
    outputs = [max(config.answer_tokens if config.overrides_output or said == UNKNOWN else said, 1) for said in trace.output_tokens]
    longest = max(map(sum, zip(trace.prompt_tokens, outputs, strict=True)))
    size = config.bytes_per_token or kv_size(config.model, config.kv_dtype, longest).bytes_per_token
    block_size = given_or(config.block_size, trace.block_tokens or DEFAULT_BLOCK_SIZE)
    blocks = block_trace(trace, block_size)
    needed, previous = smallest_capacities(blocks, tail_first=True), blocks.previous(blocks.ids)  # a tail goes first on every profile
    curve = curve_of(needed)

    def pool(capacity: int) -> Pool:
        hits, bound, tokens = curve.hits_at(capacity), curve.hits_at(None), capacity * block_size
        return Pool(capacity, tokens, tokens * size / 2**30, hits / curve.accesses, hits / bound if bound else None)

    capacity = None if config.kv_tokens == "auto" else config.kv_tokens // block_size
    at_pool, tokens = (None, None) if capacity is None else read_tiers(config, trace, outputs, size)
    timeline = None if trace.times_s is None else ReuseTimes(trace.times_s, blocks, needed, previous)
    return TracePlan(
        trace=trace.name,
        profile=config.profile,
        model=None if config.bytes_per_token else config.model,
        bytes_per_token=size,
        requests=len(trace),
        left_out=trace.left_out,
        prompt_tokens=sum(trace.prompt_tokens),
        output_tokens=sum(outputs),
        longest_tokens=longest,
        span_s=None if trace.times_s is None else trace.times_s[-1] - trace.times_s[0],
        block_size=block_size,
        accesses=blocks.accesses,
        distinct=int((previous < 0).sum()),
        bound=curve.hits_at(None) / curve.accesses,
        curve=tuple(pool(point) for point in _points(curve).tolist()),
        smallest=tuple(pool(curve.smallest(share)) for share in SHARES),
        reuse_age_s=None if timeline is None else timeline.reuse_ages(),
        lru=None if capacity is None else pool(capacity),
        optimum=None if capacity is None else most_hits(list(blocks.requests()), capacity) / curve.accesses,
        at_pool=at_pool,
        window_s=config.window,
        windows=() if timeline is None or config.window is None else tuple(timeline.windows(config.window, tokens)),
    )


def read_tiers(config: PlanConfig, trace: Trace, outputs: list[int], bytes_per_token: int) -> tuple[AtPool, list[TierTokens | None]]:
    """The arms ``none`` and ``cpu`` at ``--kv-tokens``, and of each request its tokens on ``cpu`` (``None``: it does not fit).

    Blocks are the largest that make up both the trace's and the tier's chunks, unless the user says otherwise: smaller ones change only
    how much of the pool a block that is not full takes. ``outputs``: tokens of each answer.

    Raises ``UsageError``: the sizes do not go together, or no request fits.
    """
    device, host = PROFILES[config.profile].device, PROFILES[config.profile].host
    assert device is not None
    assert host is not None
    assert config.kv_tokens != "auto"
    chunk = config.chunk_tokens
    size = given_or(config.block_size, gcd(chunk, trace.block_tokens) if trace.block_tokens else DEFAULT_BLOCK_SIZE)
    if chunk % size:
        raise UsageError(f"--chunk-tokens {chunk} is not a multiple of --block-size {size}")
    blocks = (ceil_div(prompt + output - 1, size) for prompt, output in zip(trace.prompt_tokens, outputs, strict=True))
    fits = [count <= config.kv_tokens // size - device.reserved_blocks for count in blocks]
    if not any(fits):
        raise UsageError(f"--kv-tokens {config.kv_tokens:,} holds no request of the trace; raise it")

    def prints() -> Iterator[Footprint | None]:
        return (item if fit else None for item, fit in zip(footprints(trace, outputs, size, chunk), fits, strict=True))

    host_tokens = config.given_host_tokens(bytes_per_token)
    if host_tokens is None:
        host_tokens = roomy_host(filter(None, prints()), host, chunk) * chunk
    arms = []
    for name, tier in (("none", None), ("cpu", host_tokens)):
        simulator = BlockSimulator(device, host, CacheSizes(config.kv_tokens, size, tier, chunk))
        read = [None if item is None else simulator.run(item) for item in prints()]
        tokens = TierTokens.total(item for item in read if item is not None)
        arms.append(Arm(name, tier, sum(tokens), *tokens, simulator.exact))
    return AtPool(config.kv_tokens, size, chunk, fits.count(False), tuple(arms)), read


def _load(config: PlanConfig) -> Trace:
    """The trace, and whether the options go with it."""
    assert config.trace is not None
    if config.profile == "documents":
        raise UsageError("--profile documents keeps whole documents, and a trace is of blocks; use vllm or engine")
    device = PROFILES[config.profile].device
    assert device is not None
    if device.policy != "lru":
        raise UsageError(
            f"profile {config.profile} evicts by {device.policy}, and a trace's hits at all pool sizes are counted by stack distances, "
            f"which are lru's; {INSTEAD}"
        )
    if config.kv_tokens == "auto" and (config.host_tokens is not None or config.host_gib != "auto"):
        raise UsageError("a host tier needs --kv-tokens, the pool beside which it is")
    text = PromptText(Path(config.model) / "tokenizer.json", "--trace with text")
    file = TraceFile(config.trace, text, config.trace_block_size, time_unit=config.trace_time_unit)
    if not file.reader.says_prefixes:
        raise UsageError(
            f"--trace {config.trace}: it says no prefixes ({file.reader.about} form has times and lengths), so nothing can be planned; "
            "kvbench run fragmentation --lengths reads its lengths, kvbench run trace replays its times with prompts that share nothing"
        )
    trace = load_trace(file, config.limit, config.max_prompt_tokens)
    if config.window is not None and trace.times_s is None:
        raise UsageError(f"--window: {config.trace} has no timestamps")
    return trace


def _points(curve: HitCurve) -> Integers:
    """Pools of the curve: close together where they are small, those of round numbers, and the one from which on nothing changes."""
    last = len(curve.hits) - 1
    round_numbers = [digit * 10**power for power in range(len(str(last))) for digit in (1, 2, 5) if digit * 10**power < last]
    return np.unique(np.concatenate([np.geomspace(1, max(last, 1), CURVE_POINTS).astype(np.int64), [*round_numbers, last]]))
