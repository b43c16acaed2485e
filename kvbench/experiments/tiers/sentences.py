"""Sentences that read the table for the user: what re-reading gained, why or why not, and what the first read cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import RunView
from kvbench.drawing.layout import grouped
from kvbench.drawing.numbers import NO_INTERVAL, milliseconds, per_cent, signed_per_cent, times
from kvbench.experiments.verdict import ArmVerdict, Claim, claim
from kvbench.workloads.passes import IN_ORDER

if TYPE_CHECKING:  # scipy comes with it
    from kvbench.analysis.speedup import FirstRead
    from kvbench.analysis.statistics import Interval


class ReadAgain(Protocol):
    """What sentences ask of a reading."""

    first_judged: ClassVar[int]

    def again(self, pass_name: str) -> str:
        """How a pass reads again, as the beginning of a sentence."""


def verdicts(reading: ReadAgain, view: RunView, rows: Sequence[PassRow], costs: Iterable[FirstRead]) -> Iterator[ArmVerdict]:
    """The verdict on each arm beside the baseline; none where no request gave a token."""
    if any(row.ttft_ms.p50 is not None for row in rows):
        by_arm = {cost.arm: cost for cost in costs}
        for arm in view.arms[1:]:
            yield _of_arm(reading, view, rows, arm, by_arm.get(arm))


def no_verdict(view: RunView, rows: Sequence[PassRow]) -> list[str]:
    """Why there is none."""
    if not any(row.ttft_ms.p50 is not None for row in rows):
        return ["No request gave a token, so there is nothing to read from this run."]
    return [f"Only the arm {view.info.baseline} was measured: there is nothing to compare it with; name two (--tier none --tier cpu)."]


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
        yield f"{text}: predicted TTFT p50 {p50} instead of {of_base}, {times(own.speedup.p50)}."


def _found(row: PassRow, arm: str) -> str:
    loaded = "" if row.host is None or not row.tier else f", {grouped(row.host)} from the {arm} tier"
    prompt, device, computed = grouped(row.prompt), grouped(row.device), grouped(row.computed)
    return f"of {prompt} prompt tokens {device} come from the device pool{loaded} and {computed} are computed"


def _of_arm(reading: ReadAgain, view: RunView, rows: Sequence[PassRow], arm: str, cost: FirstRead | None) -> ArmVerdict:
    own = headline(row for row in rows if row.arm == arm and row.pass_index >= reading.first_judged and row.speedup.p50 is not None)
    first = "" if cost is None else _cold_pass(cost)
    if own is None:
        words = f"Arm {arm}: {first}." if first else f"No request of the arm {arm} gave a token, so nothing can be said of it."
        return ArmVerdict(arm, None, Claim.UNKNOWN, words, words)
    base = next(row for row in rows if row.arm == view.info.baseline and row.pass_index == own.pass_index)
    kind, no_token = claim(own.speedup.p50, own.speedup.p50_interval, view.noise), _no_token(own, view.info)
    if no_token is not None and kind is not Claim.SLOWER:
        kind = Claim.NOTHING
    text = _gain(reading, base, own, kind, no_token, view)
    if first:
        text += f"; {first}"
    elif kind is Claim.SAME and view.noise is not None:
        text += f" (run-to-run noise {per_cent(view.noise.share)})"
    unknown = "" if view.noise is not None else NO_INTERVAL.removesuffix(" (--repeats 3)") if view.info.of_log else NO_INTERVAL
    both = f"{milliseconds(own.ttft_ms.p50)} on {arm}, {milliseconds(base.ttft_ms.p50)} on {base.arm}"
    return ArmVerdict(arm, own.pass_label, kind, f"{text}{unknown}.", f"TTFT p50 in pass {own.pass_label}: {both}.")


def headline(rows: Iterable[PassRow]) -> PassRow | None:
    """The pass that speaks for the arm: the first that reads again in order, else the last one."""
    found = list(rows)
    return next((row for row in found if row.pass_name in IN_ORDER), found[-1] if found else None)


def _gain(reading: ReadAgain, base: PassRow, own: PassRow, kind: Claim, no_token: str | None, view: RunView) -> str:
    from_to = f"from {milliseconds(base.ttft_ms.p50)} to {milliseconds(own.ttft_ms.p50)}"
    factor = times(own.speedup.p50) + _interval(own.speedup.p50_interval)
    if no_token is not None:
        if kind is Claim.SLOWER:
            return f"{no_token}, and TTFT p50 rose {from_to}, {factor} (slower)"
        why = "the tier has no part in what differs" if view.info.of_log else "what differs is noise"
        return f"{no_token}; {why} (TTFT p50 {from_to}, {factor})"
    arm = f"the {own.arm} tier" if own.tier else f"the arm {own.arm}"
    said = {
        Claim.FASTER: f"cut TTFT p50 {from_to}, {factor}",
        Claim.SLOWER: f"raised TTFT p50 {from_to}, {factor} (slower)",
        Claim.UNKNOWN: f"took TTFT p50 {from_to}, {factor}",
    }.get(kind, f"made no clear difference to TTFT p50: {from_to}, {factor}")
    return f"{reading.again(own.pass_name)}, {arm} {said}"


def _no_token(row: PassRow, info: RunInfo) -> str | None:
    """That no token of the pass came from the arm's tier, with the reason that the setup gives; ``None``: some did, or it is unknown."""
    why = ", as the working set fits the pool" if info.fits else ", as nothing is read again" if info.reuse == 0 else ""
    if not row.tier or row.host or (row.host is None and not why):
        return None
    return f"No token came from the {row.arm} tier in pass {row.pass_label}{why}"


def _cold_pass(cost: FirstRead) -> str:
    """What the first read cost: none where it is within the noise, as a first read that was faster always is."""
    rounded = round(cost.cost, 3)
    share = signed_per_cent(rounded) + ("" if cost.noise is None else f", run-to-run noise {per_cent(cost.noise)}")
    return f"cold-pass overhead: {f'none measurable ({share})' if rounded <= (cost.noise or 0) else share}"


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return ""
    low, high = (f"{bound:.2f}" if bound < 0.995 else f"{bound:.1f}" for bound in interval)
    return f" [95 % {low} to {high}]"
