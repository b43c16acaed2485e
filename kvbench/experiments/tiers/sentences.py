"""Sentences that read the table for the user: what re-reading gained, why or why not, and what the first read cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbench.analysis.run_info import IN_ORDER, Setup
from kvbench.drawing.numbers import milliseconds, times

if TYPE_CHECKING:  # scipy comes with it
    from kvbench.analysis.speedup import FirstRead, Interval

NOTICEABLE = 0.05
"""Without repeats there is no interval; then a difference counts as one above this share, and above the noise."""

UNSTEADY = 0.2
"""Above this share the same work differed too much by itself for its times to say anything."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a sentence needs of one pass of one arm. TTFT in ms; prompt tokens, in all and by tier; ``host`` ``None`` without a tier."""

    arm: str
    pass_name: str
    pass_index: int
    p50: float | None
    speedup: float | None
    interval: Interval | None
    host: int | None
    prompt: int | None = None
    device: int | None = None
    computed: int | None = None


def read(rows: Sequence[Measured], costs: Iterable[FirstRead], setup: Setup) -> list[str]:
    """One or two sentences for each arm beside the baseline."""
    if not any(row.p50 is not None for row in rows):
        return ["No request gave a token, so there is nothing to read from this run."]
    if len(setup.arms) < 2:
        return [f"Only the arm {setup.baseline} was measured: there is nothing to compare it with; name two (--tier none --tier cpu)."]
    by_arm = {cost.arm: cost for cost in costs}
    return [sentence for arm in setup.arms[1:] for sentence in _of_arm(rows, arm, by_arm.get(arm), setup)]


def unsteady(costs: Iterable[FirstRead]) -> Iterator[str]:
    """A note where the machine changed its speed during the run: the same work differed by itself, or a first read got faster.

    A tier only adds work to a first read, so one that is much faster with a tier was measured on a faster machine.
    """
    found = list(costs)
    noise = max((cost.noise for cost in found if cost.noise is not None), default=0.0)
    faster = max((-cost.cost for cost in found), default=0.0)
    if max(noise, faster) > UNSTEADY:
        yield (
            f"the same work differed by {max(noise, faster) * 100:.0f} % within this run, so its times mean little (token counts are "
            "exact): the cores were shared; close other programs, use fewer threads (OMP_NUM_THREADS=1), or repeat (--repeats 3)"
        )


def _of_arm(rows: Sequence[Measured], arm: str, cost: FirstRead | None, setup: Setup) -> Iterator[str]:
    own = headline(row for row in rows if row.arm == arm and row.pass_index >= setup.first_judged and row.speedup is not None)
    noise = None if cost is None else cost.noise
    gained = None
    if own is not None:
        base = next(row for row in rows if row.arm == setup.baseline and row.pass_index == own.pass_index)
        gained = _gain(base, own, noise, setup)
    first = None if cost is None else _first_read(cost, "" if setup.of_log else " (--repeats 3)")
    if gained and first:
        yield f"{gained}; {first}."
    elif gained or first:
        text = str(gained or f"On the {arm} tier {first}")
        yield text + "."
    else:
        yield f"No request of the arm {arm} gave a token, so nothing can be said of it."


def headline(rows: Iterable[Measured]) -> Measured | None:
    """The pass that speaks for the arm: the first that reads again in order, else the last one."""
    found = list(rows)
    return next((row for row in found if row.pass_name in IN_ORDER), found[-1] if found else None)


def _gain(base: Measured, own: Measured, noise: float | None, setup: Setup) -> str:
    factor = times(own.speedup) + _interval(own.interval)
    from_to = f"from {milliseconds(base.p50)} to {milliseconds(own.p50)}, {factor}"
    change = _change(own, noise)
    why = _why_nothing(own, setup) if change == 0 else ""
    verb = {1: "cut", 0: "made no clear difference to", -1: "raised"}[change]
    tail = " (slower)" if change < 0 else ""
    return f"{again(own.pass_name)}, the {own.arm} tier {verb} TTFT p50{':' if change == 0 else ''} {from_to}{tail}{why}"


def _change(row: Measured, noise: float | None) -> int:
    """1 faster, −1 slower, 0 cannot be told: by the interval where there is one, else by the noise."""
    if row.speedup is None:
        return 0
    if row.interval is not None:
        low, high = row.interval
        return (low > 1) - (high < 1)
    margin = max(NOTICEABLE, noise or 0)
    return (row.speedup > 1 + margin) - (row.speedup < 1 - margin)


def _why_nothing(row: Measured, setup: Setup) -> str:
    """The reason why a tier made no difference, where the setup gives one."""
    if setup.fits:
        return ", as the working set fits the pool"
    if setup.reuse == 0:
        return ", as nothing is read again"
    if row.host == 0:
        return ", as no token came from it"
    return ""


def _first_read(cost: FirstRead, remedy: str) -> str:
    per_cent = round(cost.cost * 100, 1) + 0.0  # adding zero makes −0.0 a plain 0.0
    text = f"the first read cost {per_cent:+.1f} %".replace("-", "−")
    if cost.noise is None:
        return f"{text}, with nothing to tell how much of it is noise{remedy}"
    noise = f"{cost.noise * 100:.1f} %"
    inside = abs(cost.cost) <= cost.noise
    if cost.noise_of == "repeats":
        return f"{text}, within the {noise} by which repeats differed" if inside else f"{text} where repeats differed by {noise}"
    same = "by which the same work measured twice differed"
    return f"{text}, within the {noise} {same}" if inside else f"{text} where the same work measured twice differed by {noise}"


def again(pass_name: str) -> str:
    """How a pass reads again, as the beginning of a sentence."""
    if pass_name in IN_ORDER:
        return "Read again in order"
    if pass_name == "trace":
        return "Over the trace"
    how = {"reverse": "in reverse", "shuffle": "in a shuffled order"}
    return f"Read again {how.get(pass_name, 'by ' + pass_name)}"


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return ""
    low, high = (f"{bound:.2f}" if bound < 0.995 else f"{bound:.1f}" for bound in interval)
    return f" [95 % {low} to {high}]"
