"""What the controls of a run say: where no tier can help, an arm that is faster all the same was measured wrongly.

An arm with a tier stores what it computes, so in a control it is at best as fast as the baseline. A gain counts if

- it is above :data:`LEAST_GAIN` in :data:`AGREEING` of the repeats, at least :data:`LEAST_CONTROL_REPEATS` of them, each over the
  baseline's same repeat: what hits one arm once (another program, a collection of garbage) is no gain;
- their mean is above the noise: two standard errors, from how much each arm's p50 differs between repeats.

`benchmarks/control_errors.py` measures how often that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from kvbench.analysis.latency import timed
from kvbench.analysis.noise import of_difference
from kvbench.analysis.request_table import counted_in_pass, tokens_of_pass
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import RunView
from kvbench.errors import UsageError
from kvbench.experiments.readings import ExperimentView
from kvbench.runs.run_folder import CONTROLS, LEAST_CONTROL_REPEATS, control_folder, read_run
from kvbench.summary import validity

LEAST_GAIN = 0.1
AGREEING = 0.8
"""Share of the repeats: all of three or four, four of five."""

RESOLVED = 0.3
"""A gain that is as large must be beyond the noise, else the control says nothing."""

_WHERE = {"no-reuse": "nothing is read again", "fits": "everything fits the pool"}
_JUDGED = 1
"""Index of the pass that would profit."""


class Verdict(StrEnum):
    """What a control says of an arm."""

    GAIN = "gain"
    NOISE = "within noise"
    NO_GAIN = "no gain"
    TOO_FEW = "too few repeats"
    TOO_NOISY = "too noisy"


@dataclass(frozen=True, slots=True)
class ControlRow:
    """One arm in one control: its pass that would profit, against the baseline's.

    ``n``: its requests over all repeats. ``baseline_ms``, ``p50_ms``: TTFT, the geometric mean of the repeats' p50; ``gain``: their ratio
    − 1. ``noise``: two standard errors of the gain. ``host``: tokens the tier gave, in all passes of a repeat. ``None`` is unknown.
    """

    control: str
    arm: str
    n: int
    repeats: int
    baseline_ms: float | None
    p50_ms: float | None
    gain: float | None
    noise: float | None
    host: int | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Controls:
    """All of a run. ``reasons``: not to trust the run; ``notes``: what could not be said. Empty where it has none."""

    rows: tuple[ControlRow, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_controls(view: RunView) -> Controls:
    """The controls of a run, from the folders below it."""
    if not view.info.config.get("controls"):
        return Controls()
    rows: list[ControlRow] = []
    reasons: list[str] = []
    notes: list[str] = []
    for name in CONTROLS:
        try:
            control = ExperimentView(read_run(control_folder(view.path, name)))
        except UsageError:
            notes.append(f"the control {name} was not measured")
            continue
        found = list(_rows(name, control))
        rows += found
        reasons += [f"control {name}: {reason}" for reason in (*validity.reasons(control), *_against(found, control.info))]
        notes += _unsaid(name, control, found)
    return Controls(tuple(rows), tuple(reasons), tuple(notes))


def _rows(name: str, control: RunView) -> Iterator[ControlRow]:
    frame = control.table
    finished = {(line["arm"], line["repeat"]) for line in control.passes if line["pass_index"] == _JUDGED}
    judged = timed(frame[frame["pass_index"] == _JUDGED])
    medians = judged.groupby(["arm", "repeat"])["ttft_ms"].median().to_dict()
    baseline = control.info.baseline or ""
    for arm in control.arms[1:]:
        both = [repeat for of, repeat in sorted(finished) if of == arm and {(arm, repeat), (baseline, repeat)} <= medians.keys() & finished]
        logs = np.log([[medians[of, repeat] for of in (baseline, arm)] for repeat in both]).reshape(-1, 2)
        base, own = (math.exp(log) for log in logs.mean(axis=0)) if both else (None, None)
        noise = of_difference(logs)
        yield ControlRow(
            control=name,
            arm=arm,
            n=int((judged["arm"] == arm).sum()),
            repeats=len(both),
            baseline_ms=base,
            p50_ms=own,
            gain=None if base is None or own is None else base / own - 1,
            noise=None if noise is None else math.expm1(noise),
            host=_from_host(control, arm) if control.has_tier(arm) else None,
            verdict=judge(logs),
        )


def judge(logs: npt.NDArray[np.float64]) -> Verdict:
    """The verdict on an arm: a row a repeat, the logarithms of the baseline's p50 and of its own."""
    noise = of_difference(logs)
    if len(logs) < LEAST_CONTROL_REPEATS or noise is None:
        return Verdict.TOO_FEW
    gains, least = logs[:, 0] - logs[:, 1], math.log1p(LEAST_GAIN)
    agree = int((gains > least).sum()) >= math.ceil(AGREEING * len(logs))
    if agree and gains.mean() > noise:
        return Verdict.GAIN
    if noise > math.log1p(RESOLVED):
        return Verdict.TOO_NOISY
    return Verdict.NOISE if gains.mean() > least else Verdict.NO_GAIN


def _from_host(control: RunView, arm: str) -> int | None:
    """Tokens that the tier gave in all passes of a repeat; ``None`` where any are unknown."""
    total = 0
    for index in (0, _JUDGED):
        lines, requests = control.finished(arm, index), control.by_pass.get((arm, index), control.table.iloc[:0])
        tokens = tokens_of_pass(requests, {line["repeat"] for line in lines})
        host = counted_in_pass(lines).host if tokens.host is None else tokens.host
        if host is None:
            return None
        total += host
    return total


def _against(rows: Sequence[ControlRow], info: RunInfo) -> Iterator[str]:
    """What cannot be where no tier can help."""
    for row in rows:
        where = _WHERE[row.control]
        if row.verdict == Verdict.GAIN and row.gain is not None and row.noise is not None:
            yield (
                f"{row.arm} is {row.gain * 100:.0f} % faster than {info.baseline} (noise {row.noise * 100:.0f} %) where {where}: "
                f"the measurement, not the tier, is at work"
            )
        if row.host and (row.control == "no-reuse" or info.concurrency == 1):
            yield f"the {row.arm} tier gave {row.host:,} tokens where {where}, so it cannot have: the counts are wrong"


def _unsaid(name: str, control: RunView, rows: Sequence[ControlRow]) -> Iterator[str]:
    if control.info.status in ("interrupted", "running"):
        yield f"the control {name} was not finished"
    for row in rows:
        if row.verdict == Verdict.TOO_FEW:
            yield f"the control {name} says nothing of {row.arm}: it needs {LEAST_CONTROL_REPEATS} repeats, and {row.repeats} were finished"
        elif row.verdict == Verdict.TOO_NOISY and row.noise is not None:
            remedy = "a quieter machine, or more --repeats"
            yield f"the control {name} says nothing of {row.arm}: the noise is {row.noise * 100:.0f} %; {remedy}"
