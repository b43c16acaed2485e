"""Several runs beside each other: which they are, in which options they differ, and the summary of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import Rows
from kvbench.comparison.identity import machine, software
from kvbench.config.slo import Slo
from kvbench.experiments.reading import Reading
from kvbench.experiments.readings import ExperimentView, readings, row_keys
from kvbench.experiments.verdict import Standing
from kvbench.runs.run_folder import read_run
from kvbench.runs.sweep_folder import Point, differing_options, is_sweep, read_sweep, shown
from kvbench.summary.summary import Summary, summary_of
from kvbench.summary.validity import unfinished

FORMAT = "kvbench.summaries/1"
INVALID, UNSTEADY = "!", "*"
"""What marks a run that is invalid, and one whose times are unsteady."""

MARKS = {INVALID: "invalid measurement", UNSTEADY: "unsteady times"}


@dataclass(frozen=True, slots=True)
class OneRun:
    """One of several runs.

    ``name``: its folder, as short as tells it from the others; ``label``: the value of the one option in which they differ, else its name;
    ``options``: those in which they differ, by field name (``None``: does not apply). ``summary`` is ``None`` for a point that has not been
    measured; ``missing`` says why, and for one that was stopped half-way too.
    """

    name: str
    label: str
    options: Mapping[str, Any]
    summary: Summary | None
    missing: str | None

    @property
    def mark(self) -> str:
        """One of :data:`MARKS` where its figures are in doubt, the graver; else nothing."""
        marks = {Standing.INVALID: INVALID, Standing.UNSTEADY: UNSTEADY}
        return "" if self.summary is None else marks.get(self.summary.verdict.standing, "")


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Several runs. ``key``: the one option they differ in, by field name; ``None``: none, or several."""

    key: str | None
    runs: tuple[OneRun, ...]
    notes: tuple[str, ...]

    @property
    def heading(self) -> str:
        """What the labels are of."""
        return "run" if self.key is None else self.key.replace("_", "-")

    @property
    def measured(self) -> tuple[tuple[OneRun, Summary], ...]:
        """The runs that have a summary, with it."""
        return tuple((run, run.summary) for run in self.runs if run.summary is not None)

    @property
    def limits(self) -> tuple[str, ...]:
        """What none of the runs shows."""
        limits = [summary.limits for _, summary in self.measured]
        return tuple(limit for limit in limits[0] if all(limit in other for other in limits)) if limits else ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why any of the runs is invalid; each says of which it speaks."""
        return tuple(f"{self.titled(run)}: {reason}" for run, summary in self.measured for reason in summary.reasons)

    @property
    def run_notes(self) -> tuple[str, ...]:
        """The notes of the runs, each once, behind those runs that have it."""
        owners: dict[str, list[str]] = {}
        for run, summary in self.measured:
            for note in summary.notes:
                if note != run.missing:
                    owners.setdefault(note, []).append(run.label)
        option = "" if self.key is None else f"{self.heading}="
        count = len(self.measured)
        return tuple(f"{'every run' if 1 < len(runs) == count else option + ', '.join(runs)}: {note}" for note, runs in owners.items())

    @property
    def rows(self) -> Rows:
        """The rows of all runs that only some experiments have, by key."""
        return {key: tuple(row for _, summary in self.measured for row in summary.rows.get(key, ())) for key in row_keys()}

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Of every experiment, what may read rows of several runs."""
        return readings()

    def titled(self, run: OneRun) -> str:
        """A run by its label, with the option that the label is of."""
        return run.label if self.key is None else f"{self.heading}={run.label}"

    def to_json(self) -> dict[str, Any]:
        """Plain objects; a run's summary is as that of one run."""
        return {
            "format": FORMAT,
            "key": self.key,
            "runs": [
                {
                    "run": run.name,
                    "label": run.label,
                    "options": dict(run.options),
                    "missing": run.missing,
                    "summary": None if run.summary is None else run.summary.to_json(),
                }
                for run in self.runs
            ],
            **{key: value for reading in self.readings for key, value in reading.joint_json(self.rows).items()},
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class _Source:
    """A run folder as far as it is needed, or a point of a sweep that has none yet. Not its lines: those of many runs would fill memory."""

    path: Path
    config: Mapping[str, Any]
    manifest: Mapping[str, Any] | None
    summary: Summary | None
    missing: str | None


def side_by_side(paths: Sequence[Path], per_document: bool = False, per_repeat: bool = False, slo: Slo | None = None) -> SideBySide:
    """The runs of these folders; that of a sweep stands for its points.

    Raises:
        UsageError: one of them cannot be read; names it.
    """
    places: list[tuple[Path, Point | None]] = []
    key = None
    for path in paths:
        sweep = read_sweep(path) if is_sweep(path) else None
        places += [(path, None)] if sweep is None else [(path / point.folder, point) for point in sweep.points]
        key = sweep.key if sweep is not None and len(paths) == 1 else None
    sources = [_source(*place, per_document, per_repeat, slo) for place in places]
    differing = {name: values for name, *values in differing_options([source.config for source in sources])}
    if key is None and len(differing) == 1:
        (key,) = differing
    options = differing if key is None else {key: [source.config.get(key) for source in sources]}
    names = _names([source.path for source in sources])
    runs = tuple(
        OneRun(name, label, {option: values[place] for option, values in options.items()}, source.summary, source.missing)
        for place, (source, name, label) in enumerate(zip(sources, names, _labels(options, names, key), strict=True))
    )
    return SideBySide(key, runs, tuple(_notes([source.manifest for source in sources if source.manifest is not None])))


def _source(path: Path, point: Point | None, per_document: bool, per_repeat: bool, slo: Slo | None) -> _Source:
    """A run folder; for a point of a sweep, also one that is not there yet."""
    if point is not None and not (path / "manifest.json").exists():
        return _Source(path, point.config, None, None, point.error or "not measured yet")
    run = read_run(path)
    config = RunInfo(run.manifest).config if point is None else point.config
    view = ExperimentView(run, slo)
    missing = (point.error if point is not None else None) or next(unfinished(view), None)
    return _Source(path, config, run.manifest, summary_of(view, per_document, per_repeat), missing)


def _names(paths: Sequence[Path]) -> list[str]:
    """The folders' own names; where two are alike, their whole paths."""
    counts = Counter(path.name for path in paths)
    return [path.name if path.name and counts[path.name] == 1 else str(path) for path in paths]


def _labels(options: Mapping[str, Sequence[Any]], names: Sequence[str], key: str | None) -> list[str]:
    """The value in which each run differs; its folder where there are none or several, or where another one has the same."""
    if key is None:
        return list(names)
    said = [shown(value) for value in options[key]]
    counts = Counter(said)
    return [
        label if label and counts[label] == 1 else f"{name} ({label})" if label else name for label, name in zip(said, names, strict=True)
    ]


def _notes(manifests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What else than options differs between the runs, and speaks in their times."""
    options = {name for manifest in manifests for name in RunInfo(manifest).config}
    for what, facts in (("machine", machine), ("software", software)):
        differing = [name for name, *_ in differing_options([facts(manifest) for manifest in manifests]) if name not in options]
        if differing:
            yield f"the runs differ in {what} too ({', '.join(differing)}): not every difference of times is of the options"
