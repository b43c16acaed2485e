"""Hits and predicted TTFT against the size of the pool, without a host tier and with one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kvbench.errors import UsageError
from kvbench.planning.planned_workload import PlannedReading, PlannedWorkload
from kvbench.planning.result import CurvePass, CurveRow, KVAmount
from kvbench.planning.sizes import Pools
from kvbench.runners.simulator.simulator import TierTokens
from kvbench.runs.rates import Rates

BEYOND = 1.1
"""How far a curve goes past the pool in which everything hits, or past the plan's own, if that is larger."""

STEPS, SHOWN_EVERY = 40, 8


def curve(
    planned: PlannedWorkload, pool: int, pools: Pools, host: int, rates: Rates | None, bytes_per_token: int, given: tuple[int, int] | None
) -> tuple[CurveRow, ...]:
    """A row for each of many pools, evenly spaced, and for those at which something happens.

    ``pool``: the plan's own, in units. ``host``: the tier, in chunks. ``given``: from and to, in tokens; ``None``: from the smallest pool
    that runs every request to past the one that hits everything. Raises ``UsageError``: no request fits the largest pool asked for.
    """
    marks = {size for size in (pool, pools.hits_at_all, pools.hits_everything) if size is not None}
    if given is None:
        low, high = planned.smallest_pool, round(max(*marks, planned.smallest_pool) * BEYOND)
    else:
        low, high = (max(planned.smallest_pool, bound // planned.unit) for bound in given)
        if given[1] < planned.smallest_pool * planned.unit:
            raise UsageError(
                f"--pool-tokens {given[0]}:{given[1]}: no request fits; the smallest pool that runs one has "
                f"{planned.smallest_pool * planned.unit:,} tokens"
            )
    spaced = [low + round((high - low) * step / STEPS) for step in range(STEPS + 1)]
    shown = {*spaced[::SHOWN_EVERY], *(mark for mark in marks if low <= mark <= high)}
    return tuple(_row(planned, size, host, rates, bytes_per_token, size in shown) for size in sorted({*spaced, *shown}))


def curve_pass(planned: PlannedWorkload, reading: PlannedReading, index: int, rates: Rates | None) -> CurvePass:
    """One pass of a reading with a tier; without one the device's hits are the same."""
    found = reading.passes[index]
    prompt = sum(map(sum, found))
    return CurvePass(
        pass_label=planned.passes[index].label,
        none_rate=reading.device(index) / prompt,
        cpu_rate=sum(tokens.device + tokens.host for tokens in found) / prompt,
        none_p50_ms=p50(rates, without_tier(found)),
        cpu_p50_ms=p50(rates, found),
    )


def without_tier(requests: Sequence[TierTokens]) -> list[TierTokens]:
    """The same requests where there is no host tier: what it gave is computed."""
    return [TierTokens(tokens.device, 0, tokens.host + tokens.computed) for tokens in requests]


def times_ms(rates: Rates | None, requests: Sequence[TierTokens]) -> list[float] | None:
    """Predicted TTFT of each request; ``None`` where a rate that one of them needs is not known."""
    times = [] if rates is None else [rates.ttft_ms(tokens) for tokens in requests]
    known = [time for time in times if time is not None]
    return known if len(known) == len(requests) else None


def p50(rates: Rates | None, requests: Sequence[TierTokens]) -> float | None:
    """The median of :func:`times_ms`."""
    times = times_ms(rates, requests)
    return None if times is None else median(times)


def _row(planned: PlannedWorkload, pool: int, host: int, rates: Rates | None, bytes_per_token: int, shown: bool) -> CurveRow:
    reading = planned.read(pool, host)
    prompt = sum(footprint.prompt_tokens for footprint in planned.footprints)
    best = planned.best_hits(pool) if shown else None
    later = range(min(1, len(planned.passes) - 1), len(planned.passes))
    return CurveRow(
        pool=KVAmount(pool * planned.unit, pool * planned.unit * bytes_per_token / 2**30, pool),
        shown=shown,
        passes=tuple(curve_pass(planned, reading, index, rates) for index in later),
        lru_rate=reading.device_hits / prompt,
        best_rate=None if best is None else best / prompt,
    )
