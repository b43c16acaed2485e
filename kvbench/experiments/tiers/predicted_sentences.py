"""Sentences that read a simulated run for the user: what reading again is predicted to find, and to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_view import RunView
from kvbench.drawing.numbers import milliseconds, times
from kvbench.experiments.tiers.sentences import ReadAgain, headline


def read(reading: ReadAgain, view: RunView, rows: Sequence[PassRow]) -> list[str]:
    """A sentence for each arm, on the pass that speaks for it; none where nothing is read again."""
    baseline = view.info.baseline
    spoken = [arm for arm in view.arms if arm != baseline or len(view.arms) == 1]
    return [sentence for arm in spoken for sentence in _of_arm(reading, rows, arm, baseline)]


def _of_arm(reading: ReadAgain, rows: Sequence[PassRow], arm: str, baseline: str | None) -> Iterator[str]:
    own = headline(row for row in rows if row.arm == arm and row.pass_index >= reading.first_judged)
    if own is None:
        return
    base = next((row for row in rows if row.arm == baseline and row.pass_index == own.pass_index), own)
    text = f"{reading.again(own.pass_name)}, {_found(own, arm)}"
    if base is not own:
        text += f"; on {base.arm}, {_counted(base.computed)} are computed"
    if own.ttft_ms.p50 is None:
        yield f"{text}."
    elif base is own:
        yield f"{text}: predicted TTFT p50 {milliseconds(own.ttft_ms.p50)}."
    else:
        p50, of_base = milliseconds(own.ttft_ms.p50), milliseconds(base.ttft_ms.p50)
        yield f"{text}: predicted TTFT p50 {p50} in place of {of_base}, {times(own.speedup.p50)}."


def _found(row: PassRow, arm: str) -> str:
    loaded = "" if row.host is None or not row.tier else f", {_counted(row.host)} from the {arm} tier"
    prompt, device, computed = _counted(row.prompt), _counted(row.device), _counted(row.computed)
    return f"of {prompt} prompt tokens {device} come from the device pool{loaded} and {computed} are computed"


def _counted(tokens: int | None) -> str:
    return "–" if tokens is None else f"{tokens:,}"
