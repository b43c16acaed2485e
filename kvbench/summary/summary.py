"""The one summary of a run that every report format shows. Computed from the run folder, again and again the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from kvbench.analysis import spread
from kvbench.analysis.cache import LoadCost, SourceRow, load_cost, source_rows
from kvbench.analysis.latency import ScheduledRow, scheduled_rows
from kvbench.analysis.pass_rows import DocumentRow, PassRow, document_rows, pass_rows
from kvbench.analysis.prediction import Agreement
from kvbench.analysis.run_info import LOG
from kvbench.analysis.run_view import Rows, RunView
from kvbench.analysis.speedup import FirstRead, first_read
from kvbench.analysis.stalls import Stalls, stalls_of
from kvbench.config.slo import Slo
from kvbench.experiments.reading import Reading
from kvbench.experiments.readings import ExperimentView, row_keys
from kvbench.experiments.verdict import RunVerdict, run_verdict, unsteady_note
from kvbench.metrics.registry import of_pass as added_metrics
from kvbench.runs.run_folder import Run
from kvbench.summary import validity
from kvbench.summary.controls import Controls, read_controls
from kvbench.summary.limits import limits
from kvbench.summary.trust import reasons_of

FORMAT = "kvbench.summary/1"
_DISAGREEMENT = "repeats differ in their tokens by tier; the table shows their rounded mean"


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything a report says about a run. ``title`` is its parts; ``documents`` and ``repeats`` are ``None`` unless asked for.

    ``rates`` are those of the predicted times with the fit they come from (:func:`kvbench.runs.calibration.describe_fit`): a simulated
    run's own; of a measured run, what its requests tell. ``None`` where there are none. ``limits``: what the run does not show
    (:mod:`kvbench.summary.limits`). ``no_prediction``: why a measured run has TTFTs that are not predicted. ``link``: what is said of the
    link between device and host, if one was simulated.
    """

    path: str
    status: str
    simulated: bool
    title: tuple[str, ...]
    baseline: str | None
    passes: tuple[PassRow, ...]
    sources: tuple[SourceRow, ...]
    loads: tuple[LoadCost, ...]
    first_reads: tuple[FirstRead, ...]
    stalls: tuple[Stalls, ...]
    prediction: Agreement | None
    rates: Mapping[str, Any] | None
    verdict: RunVerdict
    sentences: tuple[str, ...]
    notes: tuple[str, ...]
    reasons: tuple[str, ...]
    documents: tuple[DocumentRow, ...] | None = None
    scheduled: tuple[ScheduledRow, ...] = ()
    repeats: tuple[spread.RepeatRow, ...] | None = None
    limits: tuple[str, ...] = ()
    controls: Controls = field(default_factory=Controls)
    no_prediction: str | None = None
    link: str | None = None
    rows: Rows = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading)
    shows_load: bool = False

    @property
    def source(self) -> str:
        """What ``path`` is, for the last line of a report."""
        return "Log" if self.title[:1] == (LOG,) else "Run folder"

    def to_json(self) -> dict[str, Any]:
        """The summary as plain objects, with its format and version; the names of the fields are the keys, and those of the rows."""
        apart = ("link", "rows", "reading", "shows_load")
        values = {item.name: _plain(getattr(self, item.name)) for item in fields(self) if item.name not in apart}
        for row in values["passes"]:
            if row["metrics"] is None:
                del row["metrics"]
        rows = {key: _plain(rows) for key, rows in self.rows.items()}
        return {"format": FORMAT, **values, "title": " | ".join(self.title), **rows, "link": self.link}


def summarise(run: Run, per_document: bool = False, per_repeat: bool = False, slo: Slo | None = None) -> Summary:
    """The summary of a run, finished or not; ``per_document`` adds a row for each request of a pass, ``per_repeat`` for each repeat."""
    return summary_of(ExperimentView(run, slo), per_document, per_repeat)


def summary_of(view: ExperimentView, per_document: bool = False, per_repeat: bool = False) -> Summary:
    """The same of a run that is in view already."""
    info, reading = view.info, view.reading
    judges, measures = reading.judges_tiers, reading.judges_tiers and not info.simulated
    far = tuple(spread.outliers(view)) if measures else ()
    passes = tuple(pass_rows(view, {(row.arm, row.pass_index): row.count for row in far}, added_metrics)) if judges else ()
    costs = tuple(_first_reads(view, reading)) if measures else ()
    controls = read_controls(view)
    reasons = reasons_of(view, controls)
    arms = tuple(reading.verdicts(view, passes, costs))
    verdict = run_verdict(reasons, view.noise, arms)
    return Summary(
        path=str(view.path),
        status=info.status,
        simulated=info.simulated,
        title=tuple(_title(view, reading)),
        baseline=info.baseline,
        passes=passes,
        sources=tuple(source_rows(view)) if judges else (),
        loads=tuple(cost for arm in view.arms if (cost := load_cost(view, arm)) is not None) if measures else (),
        first_reads=costs,
        stalls=tuple(found for arm in view.arms if (found := stalls_of(view.run, arm)) is not None),
        prediction=view.agreement,
        rates=view.rates,
        verdict=verdict,
        sentences=tuple(verdict.over(arms, [*reading.sentences(view, passes, costs), *reading.conditions(view)])),
        notes=(
            *validity.notes(view),
            *([] if all(row.repeats_agree for row in passes) else [_DISAGREEMENT]),
            *spread.outlier_note(far, view.labels),
            *unsteady_note(view.noise, info),
            *controls.notes,
        ),
        reasons=reasons,
        documents=tuple(document_rows(view)) if per_document else None,
        scheduled=tuple(scheduled_rows(view)),
        repeats=tuple(spread.repeat_rows(view)) if per_repeat else None,
        limits=limits(view),
        controls=controls,
        no_prediction=view.no_prediction,
        link=info.link,
        rows={**dict.fromkeys(row_keys(), ()), **view.rows},
        reading=reading,
        shows_load=measures and (info.concurrency != 1 or any(row.tpot_ms.n for row in passes)),
    )


def _title(view: RunView, reading: Reading) -> Iterator[str]:
    info = view.info
    yield info.experiment
    yield f"{info.runner}, profile {info.profile}" if info.simulated else f"{info.runner} on {info.device}" if info.device else info.runner
    if name := info.model.get("name"):
        yield str(name)
    yield from reading.title(view)
    if info.device_tokens is not None:
        yield f"pool {info.device_tokens:,}"
    for arm in view.arms:
        if (size := info.host_tokens.get(arm)) is not None:
            yield f"{arm} tier {size:,}"
    if info.working_set_ratio is not None:
        yield f"{'working set' if reading.judges_tiers else 'needed'} {info.working_set_ratio:.1f}x"
    if info.link is not None:
        yield info.link
    if (concurrency := info.concurrency or 1) > 1:
        yield f"concurrency {concurrency}"
    if (repeats := info.config.get("repeats", 1)) > 1:
        yield f"{repeats} repeats"


def _first_reads(view: RunView, reading: Reading) -> Iterator[FirstRead]:
    """What the first read cost on each arm; none of a log with one pass, as nothing says that it is a first read."""
    if reading.first_judged and not (view.info.of_log and len(view.labels) == 1):
        for arm in view.arms[1:]:
            if (cost := first_read(view.table, view.arms[0], arm, view.noise)) is not None:
                yield cost


def _plain(value: Any) -> Any:
    """The value with dataclasses as mappings."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
