"""Sentences that read the table for the user: what re-reading gained, why or why not, and what the first read cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import RunView
from kvbench.drawing.layout import grouped
from kvbench.drawing.numbers import milliseconds, times
from kvbench.workloads.passes import IN_ORDER

if TYPE_CHECKING:  # scipy comes with it
    from kvbench.analysis.speedup import FirstRead
    from kvbench.analysis.statistics import Interval

NOTICEABLE = 0.05
"""Without repeats there is no interval; then a difference counts as one above this share, and above the noise."""

UNSTEADY = 0.2
"""Above this share the same work differed too much by itself for its times to say anything."""

SHARED_CORES = "the cores were shared; close other programs, use fewer threads (OMP_NUM_THREADS=1), or repeat (--repeats 3)"


class ReadAgain(Protocol):
    """What sentences ask of a reading."""

    first_judged: ClassVar[int]

    def again(self, pass_name: str) -> str:
        """How a pass reads again, as the beginning of a sentence."""


def read(reading: ReadAgain, view: RunView, rows: Sequence[PassRow], costs: Iterable[FirstRead]) -> list[str]:
    """One or two sentences for each arm beside the baseline."""
    if not any(row.ttft_ms.p50 is not None for row in rows):
        return ["No request gave a token, so there is nothing to read from this run."]
    if len(view.arms) < 2:
        return [f"Only the arm {view.info.baseline} was measured: there is nothing to compare it with; name two (--tier none --tier cpu)."]
    by_arm = {cost.arm: cost for cost in costs}
    return [sentence for arm in view.arms[1:] for sentence in _of_arm(reading, view.info, rows, arm, by_arm.get(arm))]


def predicted(reading: ReadAgain, view: RunView, rows: Sequence[PassRow]) -> list[str]:
    """Of a simulated run a sentence for each arm, on the pass that speaks for it; none where nothing is read again."""
    baseline = view.info.baseline
    spoken = [arm for arm in view.arms if arm != baseline or len(view.arms) == 1]
    return [sentence for arm in spoken for sentence in _predicted_of_arm(reading, rows, arm, baseline)]


def _predicted_of_arm(reading: ReadAgain, rows: Sequence[PassRow], arm: str, baseline: str | None) -> Iterator[str]:
    own = headline(row for row in rows if row.arm == arm and row.pass_index >= reading.first_judged)
    if own is None:
        return
    base = next((row for row in rows if row.arm == baseline and row.pass_index == own.pass_index), own)
    text = f"{reading.again(own.pass_name)}, {_found(own, arm)}"
    if base is not own:
        text += f"; on {base.arm}, {grouped(base.computed)} are computed"
    if own.ttft_ms.p50 is None:
        yield f"{text}."
    elif base is own:
        yield f"{text}: predicted TTFT p50 {milliseconds(own.ttft_ms.p50)}."
    else:
        p50, of_base = milliseconds(own.ttft_ms.p50), milliseconds(base.ttft_ms.p50)
        yield f"{text}: predicted TTFT p50 {p50} in place of {of_base}, {times(own.speedup.p50)}."


def _found(row: PassRow, arm: str) -> str:
    loaded = "" if row.host is None or not row.tier else f", {grouped(row.host)} from the {arm} tier"
    prompt, device, computed = grouped(row.prompt), grouped(row.device), grouped(row.computed)
    return f"of {prompt} prompt tokens {device} come from the device pool{loaded} and {computed} are computed"


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
            f"exact): {SHARED_CORES}"
        )


def _of_arm(reading: ReadAgain, info: RunInfo, rows: Sequence[PassRow], arm: str, cost: FirstRead | None) -> Iterator[str]:
    own = headline(row for row in rows if row.arm == arm and row.pass_index >= reading.first_judged and row.speedup.p50 is not None)
    noise = None if cost is None else cost.noise
    gained = None
    if own is not None:
        base = next(row for row in rows if row.arm == info.baseline and row.pass_index == own.pass_index)
        gained = f"{reading.again(own.pass_name)}, {_gain(base, own, noise, info)}"
    first = None if cost is None else _first_read(cost, "" if info.of_log else " (--repeats 3)")
    if gained and first:
        yield f"{gained}; {first}."
    elif gained or first:
        text = str(gained or f"On the {arm} tier {first}")
        yield text + "."
    else:
        yield f"No request of the arm {arm} gave a token, so nothing can be said of it."


def headline(rows: Iterable[PassRow]) -> PassRow | None:
    """The pass that speaks for the arm: the first that reads again in order, else the last one."""
    found = list(rows)
    return next((row for row in found if row.pass_name in IN_ORDER), found[-1] if found else None)


def _gain(base: PassRow, own: PassRow, noise: float | None, info: RunInfo) -> str:
    factor = times(own.speedup.p50) + _interval(own.speedup.p50_interval)
    from_to = f"from {milliseconds(base.ttft_ms.p50)} to {milliseconds(own.ttft_ms.p50)}, {factor}"
    change = _change(own, noise)
    why = _why_nothing(own, info) if change == 0 else ""
    verb = {1: "cut", 0: "made no clear difference to", -1: "raised"}[change]
    tail = " (slower)" if change < 0 else ""
    return f"the {own.arm} tier {verb} TTFT p50{':' if change == 0 else ''} {from_to}{tail}{why}"


def _change(row: PassRow, noise: float | None) -> int:
    """1 faster, −1 slower, 0 cannot be told: by the interval where there is one, else by the noise."""
    speedup, interval = row.speedup.p50, row.speedup.p50_interval
    if speedup is None:
        return 0
    if interval is not None:
        low, high = interval
        return (low > 1) - (high < 1)
    margin = max(NOTICEABLE, noise or 0)
    return (speedup > 1 + margin) - (speedup < 1 - margin)


def _why_nothing(row: PassRow, info: RunInfo) -> str:
    """The reason why a tier made no difference, where the setup gives one."""
    if info.fits:
        return ", as the working set fits the pool"
    if info.reuse == 0:
        return ", as nothing is read again"
    if row.tier and row.host == 0:
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


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return ""
    low, high = (f"{bound:.2f}" if bound < 0.995 else f"{bound:.1f}" for bound in interval)
    return f" [95 % {low} to {high}]"
