"""A trace on a pool of one size, alone and with a host tier beside it: every request alone and in order, from cold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from kvbench.config.common import DEFAULT_BLOCK_SIZE
from kvbench.config.settings import given_or
from kvbench.errors import UsageError
from kvbench.models.units import ceil_div
from kvbench.planning.config import PlanConfig
from kvbench.planning.planned_workload import roomy_tier
from kvbench.planning.trace_accesses import footprints
from kvbench.runners.profiles import PROFILES
from kvbench.runners.simulator.simulator import BlockSimulator, CacheSizes, Footprint, TierTokens
from kvbench.workloads.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Arm:
    """Prompt tokens of all requests by tier. ``host_tokens`` ``None``: no host tier.

    ``exact``: certain for requests sent one at a time; else it hangs on when a background job evicts.
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


def read_tiers(config: PlanConfig, trace: Trace, outputs: list[int], bytes_per_token: int) -> tuple[AtPool, list[TierTokens | None]]:
    """The arms ``none`` and ``cpu`` at ``--kv-tokens``, and of each request its tokens on ``cpu`` (``None``: it does not fit).

    Blocks are the largest that make up both the trace's and the tier's chunks, unless the user says otherwise: smaller ones change only
    how much of the pool a block that is not full takes.

    Args:
        outputs: tokens of each answer.

    Raises:
        UsageError: the sizes do not go together, or no request fits.
    """
    device, host = PROFILES[config.profile].device, PROFILES[config.profile].host
    assert device is not None
    assert host is not None
    assert config.kv_tokens != "auto"
    chunk = config.chunk_tokens
    size = given_or(config.block_size, gcd(chunk, trace.block_tokens) if trace.block_tokens else DEFAULT_BLOCK_SIZE)
    if chunk % size:
        raise UsageError(f"--chunk-tokens {chunk} is not a multiple of --block-size {size}")
    fits = _fits(trace, outputs, config.kv_tokens // size - device.reserved_blocks, size)
    if not any(fits):
        raise UsageError(f"--kv-tokens {config.kv_tokens:,} holds no request of the trace; raise it")

    def prints() -> Iterator[Footprint | None]:
        return (item if fit else None for item, fit in zip(footprints(trace, outputs, size, chunk), fits, strict=True))

    host_tokens = config.given_host_tokens(bytes_per_token)
    if host_tokens is None:
        host_tokens = roomy_tier(filter(None, prints()), host, chunk) * chunk
    arms = []
    for name, tier in (("none", None), ("cpu", host_tokens)):
        simulator = BlockSimulator(device, host, CacheSizes(config.kv_tokens, size, tier, chunk))
        read = [None if item is None else simulator.run(item) for item in prints()]
        arms.append(Arm(name, tier, *_sums(read), simulator.exact))
    return AtPool(config.kv_tokens, size, chunk, fits.count(False), tuple(arms)), read


def _fits(trace: Trace, outputs: list[int], blocks: int, block_size: int) -> list[bool]:
    """Whether each request can run in a pool of so many usable blocks."""
    kv = (prompt + output - 1 for prompt, output in zip(trace.prompt_tokens, outputs, strict=True))
    return [ceil_div(tokens, block_size) <= blocks for tokens in kv]


def _sums(read: list[TierTokens | None]) -> tuple[int, int, int, int]:
    """Prompt tokens, and those of each tier."""
    device, host, computed = (sum(part) for part in zip(*(tokens for tokens in read if tokens is not None), strict=True))
    return device + host + computed, device, host, computed
