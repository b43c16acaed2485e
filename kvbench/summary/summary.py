"""The one summary of a run that every report format shows. Computed from the run folder, again and again the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.analysis import noise, spread
from kvbench.analysis.cache import SOURCES, LoadCost, counted_in_pass, load_cost, sources, tokens_of_pass
from kvbench.analysis.latency import pass_seconds, timed
from kvbench.analysis.prediction import Agreement, Foreseen, compare, foreseen, with_prediction
from kvbench.analysis.request_table import pass_labels, request_frame
from kvbench.analysis.run_info import LOG, Setup, read_setup
from kvbench.analysis.schedule import ScheduledRow, scheduled_rows
from kvbench.analysis.speedup import FirstRead, Speedup, first_read, speedup
from kvbench.analysis.stalls import Stalls, stalls_of
from kvbench.analysis.statistics import Statistics, statistics
from kvbench.errors import UsageError
from kvbench.experiments.fragmentation import metrics as fragmentation
from kvbench.experiments.fragmentation import sentences as fragmentation_reading
from kvbench.experiments.pressure import crossover
from kvbench.experiments.pressure import metrics as pressure
from kvbench.experiments.pressure import sentences as pressure_reading
from kvbench.experiments.sharing import metrics as sharing
from kvbench.experiments.sharing import sentences as sharing_reading
from kvbench.experiments.tiers import predicted_sentences as simulated
from kvbench.experiments.tiers import sentences as reading
from kvbench.metrics.registry import of_pass as added_metrics
from kvbench.runs.calibration import calibrate, describe_fit
from kvbench.runs.rates import Rates
from kvbench.runs.run_folder import Run
from kvbench.summary import validity
from kvbench.summary.controls import Controls, read_controls
from kvbench.summary.limits import limits

FORMAT = "kvbench.summary/1"


@dataclass(frozen=True, slots=True)
class PassRow:
    """One pass of one arm. ``ttft_ms`` is over the requests of all repeats that gave a token; tokens are those of one repeat.

    ``answered`` counts requests that did not fail. ``pass_label`` tells passes of the same name apart. ``tier`` says whether the arm has a
    host tier. ``foreseen`` is ``None`` where nothing was predicted; any other ``None`` is unknown. ``noise``:
    :mod:`kvbench.analysis.noise`; ``outliers``: :mod:`kvbench.analysis.spread`. ``metrics``: those
    that were added (:mod:`kvbench.metrics`), by name.
    """

    arm: str
    pass_name: str
    pass_label: str
    pass_index: int
    answered: int
    failed: int
    ttft_ms: Statistics
    speedup: Speedup
    pass_s: float | None
    tier: bool
    prompt: int | None
    device: int | None
    host: int | None
    computed: int | None
    device_hit_rate: float | None
    host_hit_rate: float | None
    repeats_agree: bool
    foreseen: Foreseen | None
    noise: float | None
    outliers: int
    metrics: Mapping[str, float | None] | None = None


@dataclass(frozen=True, slots=True)
class SourceRow:
    """The requests of one arm, all passes, whose prompt came from one source; tokens are medians. ``None`` is unknown."""

    arm: str
    source: str
    tier: bool
    answered: int
    ttft_ms: Statistics
    device: float | None
    host: float | None
    computed: float | None


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One request of a pass: ``ttft_ms`` is the median over repeats, ``failed`` counts repeats; tokens as in a pass."""

    arm: str
    pass_label: str
    pass_index: int
    position: int
    document: str
    tier: bool
    failed: int
    ttft_ms: float | None
    device: int | None
    host: int | None
    computed: int | None
    foreseen: Foreseen | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything a report says about a run. ``title`` is its parts; ``documents`` and ``repeats`` are ``None`` unless asked for.

    ``rates`` are those of the predicted times with the fit they come from (:func:`kvbench.runs.calibration.describe_fit`): a simulated
    run's own; of a measured run, what its requests tell. ``None`` where there are none. ``limits``: what the run does not show
    (:mod:`kvbench.summary.limits`). ``link``: what is said of the link between device and host, if one was simulated.
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
    sentences: tuple[str, ...]
    notes: tuple[str, ...]
    reasons: tuple[str, ...]
    documents: tuple[DocumentRow, ...] | None = None
    scheduled: tuple[ScheduledRow, ...] = ()
    repeats: tuple[spread.RepeatRow, ...] | None = None
    limits: tuple[str, ...] = ()
    controls: Controls = field(default_factory=Controls)
    pressure: tuple[pressure.PressureRow, ...] = ()
    sharing: tuple[sharing.SharingRow, ...] = ()
    fragmentation: tuple[fragmentation.FragmentationRow, ...] = ()
    crossover: tuple[crossover.CrossoverRow, ...] = ()
    link: str | None = None

    @property
    def source(self) -> str:
        """What ``path`` is, for the last line of a report."""
        return "Log" if self.title[:1] == (LOG,) else "Run folder"

    def to_json(self) -> dict[str, Any]:
        """The summary as plain objects, with its format and version; the names of the fields are the keys."""
        plain = asdict(self)
        for row in plain["passes"]:
            if row["metrics"] is None:
                del row["metrics"]
        return {"format": FORMAT, **plain, "title": " | ".join(self.title)}


def summarise(run: Run, per_document: bool = False, per_repeat: bool = False) -> Summary:
    """The summary of a run, finished or not; ``per_document`` adds a row for each request of a pass, ``per_repeat`` for each repeat."""
    setup = read_setup(run.manifest)
    rates = _rates(run, setup)
    frame = with_prediction(
        request_frame(run), run, None if rates is None else Rates(*(rates[name] for name in ("prefill", "restore", "overhead_ms")))
    )
    labels = pass_labels([*run.passes, *run.requests])
    measures_tiers = setup.tiered and not setup.simulated
    far = tuple(spread.outliers(frame, setup)) if measures_tiers else ()
    outliers = {(row.arm, row.pass_index): row.count for row in far}
    rows = tuple(_pass_rows(run, frame, labels, setup, outliers)) if setup.tiered else ()
    one_pass_log = setup.of_log and len(labels) == 1  # nothing says that it is a first read
    costs = tuple(_first_reads(frame, setup)) if measures_tiers and not one_pass_log else ()
    measured = [_measured(row) for row in rows]
    short, wasted, shared = pressure.rows(run, setup), fragmentation.rows(run, setup), sharing.rows(run, setup)
    controls, back = read_controls(run), crossover.rows(run, setup)
    status = str(run.manifest.get("status"))
    recorded = run.manifest.get("reasons") or [] if status == "invalid" else []
    return Summary(
        path=str(run.path),
        status=status,
        simulated=setup.simulated,
        title=tuple(_title(run.manifest, setup)),
        baseline=setup.baseline,
        passes=rows,
        sources=tuple(_source_rows(frame, setup)) if setup.tiered else (),
        loads=tuple(cost for arm in setup.arms if (cost := load_cost(frame, arm, setup)) is not None) if measures_tiers else (),
        first_reads=costs,
        stalls=tuple(found for arm in setup.arms if (found := stalls_of(run, arm)) is not None),
        prediction=compare(run),
        rates=rates,
        sentences=()
        if one_pass_log
        else tuple(crossover.read(back) if back else (*_sentences(measured, costs, short, wasted, shared, setup), *_over_link(setup))),
        notes=(
            *validity.notes(run),
            *_disagreement(rows),
            *spread.outlier_note(far, labels),
            *(() if setup.of_log else reading.unsteady(costs)),  # the arms of a log may be anything
            *pressure_reading.unsteady(short),
            *controls.notes,
        ),
        reasons=tuple(dict.fromkeys([*recorded, *validity.check(run), *controls.reasons])),
        documents=tuple(_document_rows(frame, labels, setup)) if per_document else None,
        scheduled=tuple(scheduled_rows(run, labels, setup)),
        repeats=tuple(spread.repeat_rows(frame, labels, setup.arms)) if per_repeat else None,
        limits=limits(run, frame, setup),
        controls=controls,
        pressure=short,
        sharing=shared,
        fragmentation=wasted,
        crossover=back,
        link=setup.link,
    )


def _sentences(
    measured: Sequence[reading.Measured],
    costs: Sequence[FirstRead],
    short: Sequence[pressure.PressureRow],
    wasted: Sequence[fragmentation.FragmentationRow],
    shared: Sequence[sharing.SharingRow],
    setup: Setup,
) -> Iterable[str]:
    """What reads the tables for the user."""
    if not setup.tiered:
        read = (pressure_reading.read(short, setup), fragmentation_reading.read(wasted, setup), sharing_reading.read(shared, setup))
        return [sentence for sentences in read for sentence in sentences]
    return simulated.read(measured, setup) if setup.simulated else reading.read(measured, costs, setup)


def _over_link(setup: Setup) -> Iterator[str]:
    """Under which condition all of that holds."""
    if setup.link is not None:
        yield f"All of this is over a {setup.link}."


def _rates(run: Run, setup: Setup) -> Mapping[str, Any] | None:
    """The rates of the predicted times: a simulated run's own; of a measured one, what its requests tell."""
    if not setup.tiered:
        return None
    if setup.simulated:
        return setup.rates
    try:
        return describe_fit(run, calibrate(run))
    except UsageError:  # it tells none
        return None


def _title(manifest: dict[str, Any], setup: Setup) -> Iterator[str]:
    config = setup.config
    yield str(config.get("experiment", "run"))
    runner = str(config.get("runner", "engine"))
    yield f"{runner}, profile {setup.profile}" if setup.simulated else f"{runner} on {setup.device}" if setup.device else runner
    if name := (manifest.get("model") or {}).get("name"):
        yield str(name)
    if lengths := setup.document_tokens:
        span = f"{lengths[0]:,}" if min(lengths) == max(lengths) else f"{min(lengths):,} to {max(lengths):,}"
        yield f"{len(lengths):,} document{'s' if len(lengths) > 1 else ''} of {span} + {setup.question_tokens or 0:,}"
    if trace := setup.replay:
        prompt, output = trace.prompt_tokens / trace.requests, trace.output_tokens / trace.requests
        yield f"{trace.trace}: {trace.requests:,} of {prompt:,.0f} + {output:,.0f}"
    if config.get("lengths") is not None:
        count = (manifest.get("workload") or {}).get("requests_per_pass")
        yield f"{'' if count is None else f'{count:,} '}requests of {Path(config['lengths']).name}"
    if not setup.tiered and "requests" in config:
        yield f"{config['requests']:,} requests of {config['prompt_tokens']} + {config['output_tokens']}"
    if (context := config.get("context")) is not None:
        yield f"history of {context:,}"
    if "beams" in config:
        yield f"{_several(config['n'], 'sample')}, {_several(config['beams'], 'beam')}"
    if "max_length" in config:
        yield f"at most {config['max_length']:,}"
    if setup.device_tokens is not None:
        yield f"pool {setup.device_tokens:,}"
    for arm in setup.arms:
        if (size := setup.host_tokens.get(arm)) is not None:
            yield f"{arm} tier {size:,}"
    if setup.working_set_ratio is not None:
        yield f"{'working set' if setup.tiered else 'needed'} {setup.working_set_ratio:.1f}x"
    if setup.link is not None:
        yield setup.link
    if (concurrency := setup.concurrency or 1) > 1:
        yield f"concurrency {concurrency}"
    if (repeats := config.get("repeats", 1)) > 1:
        yield f"{repeats} repeats"


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _pass_rows(
    run: Run, frame: pd.DataFrame, labels: dict[int, str], setup: Setup, outliers: Mapping[tuple[str, int], int]
) -> Iterator[PassRow]:
    """A row for each arm and pass that has a request, arms in their order."""
    seconds = pass_seconds(run)
    names = {int(line["pass_index"]): str(line["pass"]) for line in run.requests}
    groups: dict[Any, pd.DataFrame] = dict(iter(frame.groupby(["arm", "pass_index"])))
    for arm in setup.arms:
        for index, label in labels.items():
            requests = groups.get((arm, index))
            if requests is None:
                continue
            lines = [line for line in run.passes if line["arm"] == arm and line["pass_index"] == index]
            finished = {line["repeat"] for line in lines}
            tokens = tokens_of_pass(requests, finished)
            if tokens.device is None and (counted := counted_in_pass(lines)).device is not None:
                tokens = counted
            base = groups.get((setup.baseline, index), requests.iloc[:0])
            yield PassRow(
                arm=arm,
                pass_name=names[index],
                pass_label=label,
                pass_index=index,
                answered=int((~requests["failed"]).sum()),
                failed=int(requests["failed"].sum()),
                ttft_ms=statistics(timed(requests)["ttft_ms"]),
                speedup=_own_speedup(requests) if arm == setup.baseline else speedup(base, requests),
                pass_s=seconds.get((arm, index)),
                tier=setup.has_tier(arm),
                prompt=tokens.prompt,
                device=tokens.device,
                host=tokens.host,
                computed=tokens.computed,
                device_hit_rate=tokens.hit_rate(tokens.device),
                host_hit_rate=tokens.hit_rate(tokens.host),
                repeats_agree=tokens.same,
                foreseen=foreseen(requests, finished, tokens),
                noise=noise.of_pass(requests),
                outliers=outliers.get((arm, index), 0),
                metrics=added_metrics(requests, lines),
            )


def _own_speedup(requests: pd.DataFrame) -> Speedup:
    """The baseline's over itself: exactly 1, and nothing to resample; unknown without data."""
    return Speedup() if timed(requests).empty else Speedup(p50=1.0, mean=1.0)


def _source_rows(frame: pd.DataFrame, setup: Setup) -> Iterator[SourceRow]:
    answered = frame[~frame["failed"]]
    groups: dict[Any, pd.DataFrame] = dict(iter(answered.groupby([answered["arm"], sources(answered, setup).rename("source")])))
    for arm in setup.arms:
        for name in SOURCES:
            rows = groups.get((arm, name))
            if rows is not None:
                device, host, computed = (_median(rows[tier]) for tier in ("device", "host", "computed"))
                yield SourceRow(arm, name, setup.has_tier(arm), len(rows), statistics(timed(rows)["ttft_ms"]), device, host, computed)


def _document_rows(frame: pd.DataFrame, labels: dict[int, str], setup: Setup) -> Iterator[DocumentRow]:
    groups: dict[Any, pd.DataFrame] = dict(iter(frame.groupby(["arm", "pass_index", "position", "doc_id"])))
    order = {arm: place for place, arm in enumerate(setup.arms)}
    for arm, index, position, doc in sorted(groups, key=lambda key: (order.get(key[0], len(order)), *key[1:])):
        requests = groups[arm, index, position, doc]
        tokens = tokens_of_pass(requests, set())
        names = setup.document_names
        yield DocumentRow(
            arm=arm,
            pass_label=labels[index],
            pass_index=int(index),
            position=int(position),
            document=names[doc] if names is not None and doc < len(names) else str(doc),
            tier=setup.has_tier(arm),
            failed=int(requests["failed"].sum()),
            ttft_ms=_median(timed(requests)["ttft_ms"]),
            device=tokens.device,
            host=tokens.host,
            computed=tokens.computed,
            foreseen=foreseen(requests, set(), tokens),
        )


def _median(values: pd.Series[float]) -> float | None:
    """The median, ``None`` if any value is unknown or there is none."""
    return None if values.empty or values.isna().any() else float(values.median())


def _first_reads(frame: pd.DataFrame, setup: Setup) -> Iterator[FirstRead]:
    for arm in setup.arms[1:] if setup.first_judged else ():
        cost = first_read(frame, setup.arms[0], arm)
        if cost is not None:
            yield cost


def _measured(row: PassRow) -> reading.Measured:
    return reading.Measured(
        row.arm,
        row.pass_name,
        row.pass_index,
        row.ttft_ms.p50,
        row.speedup.p50,
        row.speedup.p50_interval,
        row.host if row.tier else None,
        row.prompt,
        row.device,
        row.computed,
    )


def _disagreement(rows: tuple[PassRow, ...]) -> Iterator[str]:
    if any(not row.repeats_agree for row in rows):
        yield "repeats differ in their tokens by tier; the table shows their rounded mean"
