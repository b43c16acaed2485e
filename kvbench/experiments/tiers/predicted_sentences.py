"""Sentences that read a simulated run for the user: what reading again is predicted to find, and to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.analysis.run_info import Setup
from kvbench.drawing.numbers import milliseconds, times
from kvbench.experiments.tiers.sentences import Measured, again, headline


def read(rows: Sequence[Measured], setup: Setup) -> list[str]:
    """A sentence for each arm, on the pass that speaks for it; none where nothing is read again."""
    return [sentence for arm in setup.arms if arm != setup.baseline or len(setup.arms) == 1 for sentence in _of_arm(rows, arm, setup)]


def _of_arm(rows: Sequence[Measured], arm: str, setup: Setup) -> Iterator[str]:
    own = headline(row for row in rows if row.arm == arm and row.pass_index >= setup.first_judged)
    if own is None:
        return
    base = next((row for row in rows if row.arm == setup.baseline and row.pass_index == own.pass_index), own)
    text = f"{again(own.pass_name)}, {_found(own, arm)}"
    if base is not own:
        text += f"; on {base.arm}, {_counted(base.computed)} are computed"
    if own.p50 is None:
        yield f"{text}."
    elif base is own:
        yield f"{text}: predicted TTFT p50 {milliseconds(own.p50)}."
    else:
        yield f"{text}: predicted TTFT p50 {milliseconds(own.p50)} in place of {milliseconds(base.p50)}, {times(own.speedup)}."


def _found(row: Measured, arm: str) -> str:
    loaded = "" if row.host is None else f", {_counted(row.host)} from the {arm} tier"
    prompt, device, computed = _counted(row.prompt), _counted(row.device), _counted(row.computed)
    return f"of {prompt} prompt tokens {device} come from the device pool{loaded} and {computed} are computed"


def _counted(tokens: int | None) -> str:
    return "–" if tokens is None else f"{tokens:,}"
