"""Sentences that read a run of ``pressure``: what the shortage cost, and which recovery was cheaper here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.statistics import Interval
from kvbench.drawing.numbers import milliseconds
from kvbench.experiments.pressure.metrics import PressureRow
from kvbench.experiments.tiers.sentences import NOTICEABLE, UNSTEADY

RECOVERIES = ("recompute", "swap")


def read(rows: Sequence[PressureRow], info: RunInfo) -> Iterator[str]:
    """A sentence for each arm beside the baseline, and one that compares the recoveries."""
    if not rows:
        return
    base = rows[0]
    if base.arm != info.baseline or base.tokens_per_s is None:
        yield f"The arm {info.baseline} did not end, so there is nothing to compare the others with."
        return
    if len(rows) == 1:
        yield f"Only the arm {base.arm} was measured: there is nothing to compare it with; name two (--arm ample --arm recompute)."
    for row in rows[1:]:
        if row.share is not None:
            yield f"{_speed(row, base)}{_cost(row, base)}."
    recovered = {row.arm: row for row in rows if row.arm in RECOVERIES and row.preemptions}
    if len(recovered) == len(RECOVERIES):
        yield _cheaper(recovered["recompute"], recovered["swap"], info)


def unsteady(rows: Sequence[PressureRow]) -> Iterator[str]:
    """A note where an arm was much faster than the one in which nothing runs short: it does the same work at least, on a slower machine."""
    fastest = max((row.share for row in rows if row.share is not None), default=1.0)
    if rows and rows[0].arm == "ample" and fastest > 1 + UNSTEADY:
        yield (
            f"an arm was {(fastest - 1) * 100:.0f} % faster than ample, which does the least work, so the times of this run mean little "
            "(counts are exact): the cores were shared; close other programs, use fewer threads (OMP_NUM_THREADS=1), or repeat "
            "(--repeats 3)"
        )


def _speed(row: PressureRow, base: PressureRow) -> str:
    share = f"{row.share:.2f}x{_interval(row.share_interval)} of {base.arm}'s {base.tokens_per_s:,.0f}"
    return f"Arm {row.arm} gave {row.tokens_per_s:,.0f} output tokens/s, {share}"


def _cost(row: PressureRow, base: PressureRow) -> str:
    """What the arm paid: preemptions and the longest stall, or fewer at once."""
    if row.preemptions:
        longest = row.stalls.longest
        parts = [f"{row.preemptions:,} preemption{'' if row.preemptions == 1 else 's'}"]
        parts += [] if longest is None else [f"the longest stall {milliseconds(longest.total_ms)}"]
        parts += [f"{row.wasted * 100:.0f} % of its work was done before"] if row.wasted else []
        return f": {', '.join(parts)}"
    if row.peak_running is not None and base.peak_running is not None and row.peak_running < base.peak_running:
        ttft = f"TTFT p50 {milliseconds(row.ttft_ms.p50)} in place of {milliseconds(base.ttft_ms.p50)}"
        return f": no request gave way, and at most {row.peak_running:,} ran at once in place of {base.peak_running:,} ({ttft})"
    return ": no request gave way" if row.preemptions == 0 else ""


def _cheaper(recompute: PressureRow, swap: PressureRow, info: RunInfo) -> str:
    """By tokens/s, where the difference is one; and what coming back took, the wait for room left out."""
    best = next((one.arm for one, other in ((swap, recompute), (recompute, swap)) if _above(one, other)), None)
    cheaper = "Neither recovery was clearly cheaper here" if best is None else f"Cheaper here: {best}"
    both = f"{swap.tokens_per_s:,.0f} output tokens/s by swap, {recompute.tokens_per_s:,.0f} by recompute"
    took = [f"{milliseconds(ms)} by {row.arm}" for row in (swap, recompute) if (ms := _came_back_ms(row)) is not None]
    back = f"; the wait for room left out, coming back took {', '.join(took)} in the median" if len(took) == 2 else ""
    a_copy = info.device == "cpu" and info.link is None
    ram = ". Device pool and swap space are both RAM here, and a swap is a memory copy" if a_copy else ""
    return f"{cheaper} ({both}{back}){ram}."


def _above(one: PressureRow, other: PressureRow) -> bool:
    """Whether one gave clearly more: by intervals that do not meet, without repeats by more than :data:`NOTICEABLE`."""
    if one.share is None or other.share is None:
        return False
    if one.share_interval is not None and other.share_interval is not None:
        return one.share_interval[0] > other.share_interval[1]
    return one.share > other.share * (1 + NOTICEABLE)


def _came_back_ms(row: PressureRow) -> float | None:
    split = row.stalls.median
    if split is None or split.waiting_ms is None:
        return None
    return sum(part for part in (split.restoring_ms, split.recomputing_ms, split.first_step_ms) if part is not None)


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else f" [95 % {interval[0]:.2f} to {interval[1]:.2f}]"
