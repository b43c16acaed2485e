"""Two runs compared: what changed per arm and pass, a verdict for each figure, and which of them count as a regression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvbench.analysis.noise import NONE, ByRun, Noise, Sides, flat, mean, most_spread, own_noise, shared_noise
from kvbench.comparison import identity, thresholds
from kvbench.comparison.baseline import Baseline
from kvbench.comparison.baseline_file import Side, read_side
from kvbench.comparison.hits import compare_tier
from kvbench.comparison.metrics import PassMetrics, metrics_of
from kvbench.comparison.verdict import Change, ChangeVerdict, as_shares, interval, judge, judge_exact
from kvbench.errors import UsageError
from kvbench.metrics.metric import ComparedBy, Metric
from kvbench.metrics.registry import metrics

FORMAT = "kvbench.comparison/1"
MIN_EFFECT = 0.05
"""A change that is smaller than this share is nobody's concern, and on most machines cannot be told from another day."""

STATUS = "status"
"""What ``allow`` names to compare invalid runs."""


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of one pass of one arm in both runs.

    ``change`` with its interval ``low`` to ``high`` is a share of the base for times and speedups, a difference for counts, and a
    difference in shares of the prompt for tokens of requests that overlap. ``noise``: :func:`kvbench.analysis.noise.most_spread`.
    ``gates``: whether a verdict of worse is a regression. ``detail`` says more. ``None`` is unknown, or no interval can be made.
    """

    arm: str
    pass_label: str
    metric: Metric
    base: float | None
    new: float | None
    change: float | None
    low: float | None
    high: float | None
    noise: float | None
    repeats: tuple[int, int]
    verdict: ChangeVerdict
    gates: bool
    detail: str | None = None

    @property
    def word(self) -> str:
        """The verdict in the metric's own words."""
        worse, better = self.metric.words
        named = {ChangeVerdict.WORSE: worse, ChangeVerdict.BETTER: better, ChangeVerdict.MOVED: self.metric.moved}
        same = "same within noise" if self.low is not None and self.low != self.high else "same"
        return named.get(self.verdict, same if self.verdict == ChangeVerdict.SAME else str(self.verdict))

    def to_json(self) -> dict[str, Any]:
        """The line as a plain object, its verdict in words too."""
        names = ("base", "new", "change", "low", "high", "noise", "repeats", "verdict", "gates", "detail", "word")
        place = {"arm": self.arm, "pass_label": self.pass_label, "figure": self.metric.name, "unit": self.metric.unit}
        return {**place, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of it. ``missing``: passes of the base that the new run did not finish; ``min_effect``: a share."""

    base: Baseline
    new: Baseline
    min_effect: float
    lines: tuple[Line, ...]
    outcomes: tuple[thresholds.Outcome, ...]
    missing: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    untrusted: tuple[str, ...]

    @property
    def regressions(self) -> tuple[Line, ...]:
        """The lines that became worse, and count."""
        return tuple(line for line in self.lines if line.gates and line.verdict == ChangeVerdict.WORSE)

    @property
    def failed_rules(self) -> tuple[thresholds.Outcome, ...]:
        """The thresholds that were breached, or cannot be computed."""
        return tuple(outcome for outcome in self.outcomes if outcome.breached)

    @property
    def unsteady(self) -> tuple[str, ...]:
        """Sentences on each side whose times are unsteady."""
        sides = ("base", self.base), ("new run", self.new)
        return tuple(f"The {name} has {words[0].lower()}{words[1:]}" for name, side in sides for words in side.unsteady)

    @property
    def unsaid(self) -> tuple[str, ...]:
        """What could not be said, in words: inconclusive and unknown figures, unfinished passes."""
        few, unknown = (
            [line for line in self.lines if line.gates and line.verdict == verdict]
            for verdict in (ChangeVerdict.INCONCLUSIVE, ChangeVerdict.UNKNOWN)
        )
        remedy = "--repeats 3 or more in both runs"
        if max(self.base.runs, self.new.runs) > 1 or all(min(line.repeats) > 2 for line in few):
            remedy = "a base of more runs: kvbench baseline RUN_DIR RUN_DIR ..., or a quieter machine"
        said = [f"{len(few)} of {len(self.lines)} figures are inconclusive: too few samples ({remedy})"] if few else []
        if unknown:
            names = ", ".join(dict.fromkeys(line.metric.name for line in unknown))
            said.append(f"{len(unknown)} of {len(self.lines)} figures are unknown in one run or both ({names})")
        said += [f"{arm}, {label}: the new run did not finish this pass" for arm, label in self.missing]
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain objects; the cells of both sides are left out, as their own files hold them."""

        def side(run: Baseline) -> dict[str, Any]:
            names = ("source", "runs", "kvbench", "created", "status", "reasons", "exact", "subject", "machine", "software")
            return {name: getattr(run, name) for name in names}

        return {
            "format": FORMAT,
            "base": side(self.base),
            "new": side(self.new),
            "min_effect": self.min_effect,
            "regressed": bool(self.regressions or self.failed_rules),
            "lines": [line.to_json() for line in self.lines],
            "thresholds": [outcome.to_json() for outcome in self.outcomes],
            "missing": [list(key) for key in self.missing],
            "unsaid": list(self.unsaid),
            "notes": list(self.notes),
            "untrusted": list(self.untrusted),
            "unsteady": list(self.unsteady),
        }


def compare(base: Side, new: Side, *, min_effect: float = MIN_EFFECT, allow: Sequence[str] = (), fail_on: Sequence[str] = ()) -> Comparison:
    """Compare a run with a base.

    Args:
        base: a run, its folder, a baseline, or the file of one; ``new`` likewise.
        min_effect: the least share by which a metric must have changed, its whole interval, to be better or worse.
        allow: fields of the subject that may differ (:func:`kvbench.comparison.identity.subject`), and :data:`STATUS`.
        fail_on: thresholds (:mod:`kvbench.comparison.thresholds`).

    Raises:
        UsageError: one cannot be read, they measured different things, have no pass in common, or a threshold is none.
    """
    rules = [thresholds.parse(text) for text in fail_on]
    base, new = read_side(base), read_side(new)
    _refuse_another_subject(base, new, allow)
    before, after = metrics_of(base.cells), metrics_of(new.cells)
    common = [key for key in after if key in before]
    if not common:
        have = " and ".join(f"{side.source} has {len(side.cells)} finished passes ({side.status})" for side in (base, new))
        raise UsageError(f"no pass of an arm is finished in both: {have}")
    other_machine = any(identity.differences(base.machine, new.machine))
    exact = base.exact and new.exact
    one_over = base.arms[0] == new.arms[0]
    measured = [line for key in common for line in _lines(key, before[key], after[key], exact) if one_over or not line.metric.over_baseline]
    predicted = all(side.subject.get("runner") == "simulator" for side in (base, new))
    lines = tuple(_judged(measured, min_effect, other_machine, max(base.runs, new.runs) > 1, predicted))
    missing = tuple(key for key in before if key not in after and key[0] in _arms(new))
    return Comparison(
        base=base,
        new=new,
        min_effect=min_effect,
        lines=lines,
        outcomes=tuple(outcome for rule in rules for outcome in thresholds.evaluate(rule, before, after, missing, other_machine)),
        missing=missing,
        notes=tuple(_notes(base, new, lines, other_machine)),
        untrusted=() if STATUS in allow else tuple(_untrusted(base, new)),
    )


def _arms(run: Baseline) -> Sequence[str]:
    """The arms the run was to measure."""
    sizes, named = run.subject.get("host_tokens"), run.subject.get("tier")
    if isinstance(sizes, Mapping):
        return list(sizes)
    return named if isinstance(named, (list, tuple)) else run.arms


def _refuse_another_subject(base: Baseline, new: Baseline, allow: Sequence[str]) -> None:
    found = list(identity.differences(base.subject, new.subject))
    known = base.subject.keys() | new.subject.keys() | {STATUS}
    if strange := [name for name in allow if name not in known]:
        raise UsageError(f"--allow {strange[0]}: is no field of these runs; there are {', '.join(sorted(known))}")
    refused = [item for item in found if item[0] not in allow]
    if refused:
        what = "; ".join(f"{name}: {identity.shown(before)} and {identity.shown(after)}" for name, before, after in refused)
        allowed = " ".join(f"--allow {name}" for name, _, _ in refused)
        raise UsageError(f"these runs measured different things ({what}); compare like with like, or say that it may differ: {allowed}")


@dataclass(frozen=True, slots=True)
class _Measured:
    """A line before what all lines share is known: how many are compared at once, and their noise.

    ``samples``: the metric in each repeat of base and new, run by run. ``verdict`` is set where no interval decides.
    """

    key: tuple[str, str]
    metric: Metric
    base: float | None
    new: float | None
    samples: tuple[ByRun, ByRun]
    verdict: ChangeVerdict | None = None
    detail: str | None = None

    @property
    def relative(self) -> bool:
        """Whether its change is a share of the base."""
        return self.metric.compared is ComparedBy.RATIO

    @property
    def compared(self) -> Sides:
        """What an interval is made of: logarithms where the change is a share."""
        base, new = ([np.log(run).tolist() for run in side] if self.relative else side for side in self.samples)
        return Sides(self.key[0], base, new)


def _judged(measured: Sequence[_Measured], min_effect: float, other_machine: bool, several: bool, predicted: bool) -> Iterator[Line]:
    """The lines with their intervals, which hold together, and their verdicts.

    ``several``: a side has several runs; ``predicted``: both are simulated, and so without noise.
    """
    open_ = [line for line in measured if line.verdict is None]
    noises = dict.fromkeys(map(id, open_), NONE) if predicted else _noises(open_, several)
    at_once = _at_once(open_, several)
    for line in measured:
        base, new = (flat(side) for side in line.samples)
        if line.verdict is not None:
            change = Change(None if line.base is None or line.new is None else line.new - line.base)
            verdict = line.verdict
        else:
            found = interval(line.compared, noises[id(line)], at_once)
            change = as_shares(found) if line.relative else found
            scale = None if line.relative else 1.0 if line.metric.compared is ComparedBy.TOKENS else float(np.mean(base)) or 1.0
            verdict = judge(change, min_effect, line.metric.more_is_worse, scale)
        yield Line(
            *line.key, line.metric, line.base, line.new, change.change, change.low, change.high,
            most_spread(base, new) if line.relative else None, (len(base), len(new)), verdict,
            gates=not (other_machine and line.metric.of_machine), detail=line.detail,
        )  # fmt: skip


def _at_once(lines: Sequence[_Measured], several: bool) -> float:
    """For how many figures the intervals are to hold together, so that at most one comparison in twenty calls a regression where nothing
    changed (benchmarks/compare_errors.py).

    Within one run half of the figures, as a regression is one end of the interval. Run by run p50, mean and speedups of a pass go
    together, and so do the arms: half as many as there are passes of arms were as many as made runs needed.
    """
    return max(2, len({line.key for line in lines}) / 2) if several else len(lines) / 2


def _noises(lines: Sequence[_Measured], several: bool) -> dict[int, Noise | None]:
    """The noise of each line by its id: of times and speedups shared over the passes of a metric."""
    noises: dict[int, Noise | None] = {}
    for name in dict.fromkeys(line.metric.name for line in lines):
        alike = [line for line in lines if line.metric.name == name]
        sides = [line.compared for line in alike]
        found = shared_noise(sides, several) if alike[0].relative else [own_noise(one.base, one.new) for one in sides]
        noises |= dict(zip(map(id, alike), found, strict=True))
    return noises


def _lines(key: tuple[str, str], base: PassMetrics, new: PassMetrics, exact: bool) -> Iterator[_Measured]:
    """What is compared of a pass, in the order of the metrics."""
    for metric in metrics().values():
        before, after, samples = base.value(metric), new.value(metric), (base.by_run(metric), new.by_run(metric))
        if metric.compared is ComparedBy.RATIO:
            if not any(samples) or (metric.over_baseline and (base.baseline is None or new.baseline is None)):
                continue  # nothing was timed, as by the simulator; and the baseline arm over itself is 1
            known = all(samples) and min(min(flat(side)) for side in samples) > 0
            yield _Measured(key, metric, before, after, samples, None if known else ChangeVerdict.UNKNOWN)
        elif metric.compared is ComparedBy.TOKENS:
            if base.cell.tier or new.cell.tier or not metric.needs_tier:
                yield _Measured(key, metric, before, after, *compare_tier(metric, base, new, exact))
        elif metric.compared is not ComparedBy.LIMIT:
            if (before is None and after is None) or (metric.hidden_at_0 and not (before or after)):
                continue
            exactly = exact or metric.compared is ComparedBy.EXACT or not all(samples)
            yield _Measured(key, metric, before, after, samples, _of_counts(samples, metric.more_is_worse) if exactly else None)


def _of_counts(samples: tuple[ByRun, ByRun], more_is_worse: bool | None) -> ChangeVerdict:
    """Of counts that must come out the same: the means of the repeats."""
    if not all(samples):
        return ChangeVerdict.UNKNOWN
    base, new = (values[0] if len(set(values := flat(side))) == 1 else mean(side) for side in samples)
    return judge_exact(base, new, more_is_worse)


def _notes(base: Baseline, new: Baseline, lines: Sequence[Line], other_machine: bool) -> Iterator[str]:
    if other_machine:
        yield f"another machine ({_named(base.machine, new.machine)}): times are shown and do not count; tokens and speedups do"
    if changed := _named(base.software, new.software):
        yield f"changed between the runs: {changed}"
    if allowed := _named(base.subject, new.subject):
        yield f"allowed to differ: {allowed}"
    if base.arms[0] != new.arms[0]:
        yield f"speedups are over {base.arms[0]} in the base and over {new.arms[0]} in the new run, so they are not compared"
    for side, name in ((base, "base"), (new, "new run")):
        if side.status in ("interrupted", "running"):
            yield f"the {name} was not finished ({side.status}): {'; '.join(side.reasons) or side.source}"
    yield from _together(lines)


def _named(base: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {identity.shown(a)} to {identity.shown(b)}" for name, a, b in identity.differences(base, new))


def _together(lines: Sequence[Line]) -> Iterator[str]:
    """Where every time became worse and no speedup did, the tier is not to blame."""
    medians = [line for line in lines if line.metric.name == "ttft_p50"]
    speedups = [line for line in lines if line.metric.over_baseline]
    if (
        speedups
        and all(line.verdict == ChangeVerdict.WORSE for line in medians)
        and not any(line.verdict == ChangeVerdict.WORSE for line in speedups)
    ):
        changes = [line.change or 0.0 for line in medians]
        least, most = (f"{bound * 100:+.0f} %" for bound in (min(changes), max(changes)))
        yield f"every arm and pass is slower ({least} to {most}) and no speedup is: the engine as a whole or the machine, not the tier"


def _untrusted(base: Baseline, new: Baseline) -> Iterator[str]:
    for side in (base, new):
        if side.status == "invalid":
            yield f"{side.source}: {'; '.join(side.reasons) or 'its own checks say so'}"
