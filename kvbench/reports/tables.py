"""The tables; the formats differ only in how they draw them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from kvbench.analysis.cache import LoadCost, SourceRow
from kvbench.analysis.latency import ScheduledRow
from kvbench.analysis.pass_rows import DocumentRow, PassRow
from kvbench.analysis.prediction import Agreement, Foreseen
from kvbench.analysis.spread import RepeatRow
from kvbench.analysis.stalls import MULTIPLE, Stalls
from kvbench.drawing.layout import NO_TIER, UNKNOWN, Cell, Style, grouped, table, with_rest
from kvbench.drawing.numbers import decimal, per_cent, signed_per_cent
from kvbench.metrics.metric import Metric
from kvbench.metrics.registry import metrics
from kvbench.summary.controls import ControlRow
from kvbench.summary.summary import Summary

SHOWN = 10
"""Requests that differ from the prediction are listed up to so many."""


_NOISE = 3.5
"""The place of the noise in the table of passes: behind the times."""

_TIERS = ["device", "host", "computed"]


Column = tuple[float, str, list[Cell]]
"""Its place from the left, its head, and a cell for each pass."""


def by_pass(summary: Summary, style: Style) -> str:
    """The main table: a row an arm and pass; with repeats, how much each differs from itself."""
    rows = summary.passes
    own: list[Column] = [(-1, "n", [row.ttft_ms.n or row.answered for row in rows])]
    if any(row.noise is not None for row in rows):
        own.append((_NOISE, "noise", [per_cent(row.noise) for row in rows]))
    return _pass_table(summary, [*own, *_metric_columns(summary, "pass")], style)


def load_tables(summary: Summary, style: Style) -> Iterator[tuple[str, str]]:
    """Headings and tables of what load gave: rates and medians, and the tails of latencies with samples enough for them."""
    if summary.shows_load:
        by_load, by_tail = (_pass_table(summary, list(_metric_columns(summary, name)), style) for name in ("load", "tail"))
        yield "Load (a second of pass time; TPOT, ITL and E2EL: p50 in ms)", by_load
        if by_tail:
            yield "Tail latency (ms; where there are samples enough)", by_tail
    missed = [(row, name, met) for row in summary.passes for name, met in (row.slo_percentiles or {}).items()]
    if missed:
        lines = [[row.arm, row.pass_label, name, {True: "met", False: "missed", None: UNKNOWN}[met]] for row, name, met in missed]
        yield "Objectives at a percentile (--slo)", table(["arm", "pass", "limit", "result"], 3, lines, style)


def _pass_table(summary: Summary, columns: Sequence[Column], style: Style) -> str:
    """A row an arm and pass, with these columns; empty without one."""
    shown = sorted(columns, key=itemgetter(0))
    lines = [[row.arm, row.pass_label, *(cells[place] for _, _, cells in shown)] for place, row in enumerate(summary.passes)]
    return table(["arm", "pass", *(header for _, header, _ in shown)], 2, lines, style) if shown else ""


def _metric_columns(summary: Summary, name: str) -> Iterator[Column]:
    """The metrics (:mod:`kvbench.metrics`) of a table."""
    for metric in metrics().values():
        values = [metric.of_row(row) for row in summary.passes]
        hidden = (metric.hidden_at_0 and not any(values)) or (metric.hidden_unknown and not any(value is not None for value in values))
        if metric.table == name and metric.column is not None and not hidden:
            header = metric.header.replace("{baseline}", str(summary.baseline))
            yield metric.column, header, [_metric(metric, row) for row in summary.passes]


def _metric(metric: Metric, row: PassRow) -> Cell:
    if metric.needs_tier and not row.tier:
        return NO_TIER
    value = metric.of_row(row)
    return value if value is None or metric.show is grouped else (metric.cell or metric.show)(value)


def by_source(summary: Summary, style: Style) -> str:
    """The requests by where their prompt came from; tokens are medians."""
    rows: list[list[Cell]] = [
        [row.arm, row.source, row.ttft_ms.n or row.answered, decimal(row.ttft_ms.p50), decimal(row.ttft_ms.mean), *_tiers(row)]
        for row in summary.sources
    ]
    return table(["arm", "source", "n", "TTFT p50", "mean", *_TIERS], 2, rows, style)


def by_repeat(rows: Sequence[RepeatRow], style: Style) -> str:
    """TTFT of each repeat by itself; tail percentiles where any repeat has enough samples for one."""
    failed, tails = any(row.failed for row in rows), any(row.ttft_ms.p90 is not None for row in rows)
    header = ["arm", "pass", "repeat", "n", "failed" if failed else None, "TTFT p50", "mean", "std", "min", "max"]
    names = ("p50", "mean", "std", "min", "max", "p90", "p99")
    lines: list[list[Cell]] = [
        [row.arm, row.pass_label, row.repeat, row.ttft_ms.n, row.failed, *(decimal(getattr(row.ttft_ms, name)) for name in names)]
        for row in rows
    ]
    return table([*header, *(["p90", "p99"] if tails else [None] * 2)], 2, lines, style)


def by_schedule(rows: Sequence[ScheduledRow], style: Style) -> str:
    """TTFT from when each request should have been sent, and how late it was sent; milliseconds."""

    def cells(row: ScheduledRow) -> list[Cell]:
        ttft, late = row.ttft_ms, row.late_ms
        return [row.arm, row.pass_label, ttft.n, *map(decimal, (ttft.p50, ttft.mean, ttft.p90, ttft.p99, late.p50, late.max))]

    return table(["arm", "pass", "n", "TTFT p50", "mean", "p90", "p99", "late p50", "late max"], 2, map(cells, rows), style)


def by_document(rows: Sequence[DocumentRow], style: Style, noun: str = "document") -> str:
    """Every request of every pass, in the order in which it was read; where anything was predicted, whether it came so."""
    failed = "failed" if any(row.failed for row in rows) else None
    predicted = "predicted" if any(row.foreseen for row in rows) else None
    lines: list[list[Cell]] = [
        [row.arm, row.pass_label, row.document, row.failed, decimal(row.ttft_ms), *_tiers(row), _as_predicted(row.foreseen)] for row in rows
    ]
    return table(["arm", "pass", noun, failed, "TTFT", *_TIERS, predicted], 3, lines, style)


def documents_table(summary: Summary, style: Style) -> Iterator[tuple[str, str]]:
    """Heading and table of the requests one by one, if they were asked for; where no document is read again, they are just requests."""
    noun = "document" if summary.passes else "request"
    if summary.documents:
        yield f"By {noun} (TTFT: median over repeats)", by_document(summary.documents, style, noun)


def controls_table(summary: Summary, style: Style) -> Iterator[tuple[str, str]]:
    """Heading and table of the controls, where no tier can help, if the run has any: a row an arm beside the baseline."""

    def cells(row: ControlRow) -> list[Cell]:
        tier, times = NO_TIER if row.arm == "none" else row.host, map(decimal, (row.baseline_ms, row.p50_ms))
        return [row.control, row.arm, row.n, *times, signed_per_cent(row.gain), per_cent(row.noise), tier, row.verdict]

    if rows := summary.controls.rows:
        header = ["control", "arm", "n", f"{summary.baseline} p50", "p50", "gain", "noise", "host", "verdict"]
        yield "Controls, where no tier can help (TTFT of the second pass)", table(header, 2, map(cells, rows), style)


def load_lines(loads: Sequence[LoadCost]) -> Iterator[str]:
    """Load against compute, a line an arm."""
    for cost in loads:
        rate = "" if cost.gib_per_s is None else f" ({cost.gib_per_s:.1f} GiB/s)"
        ratio = "" if cost.ratio is None else f", {cost.ratio:.1f}x"
        yield (
            f"A load from the {cost.arm} tier: {cost.tokens:,.0f} tokens in {cost.load_ms:,.1f} ms{rate}; "
            f"computing as many takes {cost.compute_ms:,.0f} ms{ratio}."
        )


def stall_lines(stalls: Sequence[Stalls]) -> Iterator[str]:
    """What preemption did to the streams, a line an arm."""
    for found in stalls:
        what = "stalls" if found.exact else f"gaps above {MULTIPLE:g} of the request's own medians"
        longest = (
            ""
            if found.longest_ms is None
            else f", longest {found.longest_ms:,.0f} ms ({found.request_id}, after token {found.after_token})"
        )
        yield f"Preemptions on {found.arm}: {grouped(found.preemptions)}; {what}: {found.stalls:,}{longest}."


def prediction_line(agreement: Agreement) -> str:
    """Prediction against measurement in one line."""
    same = agreement.requests - len(agreement.differences)
    kind = "Predicted" if agreement.exact else "Estimated (no promise)"
    how_many = f"{same:,} of {agreement.requests:,} requests"
    return f"{kind} by the simulator, profile {agreement.profile}: tokens by tier of {how_many} are as foreseen."


def sides(summary: Summary, style: Style) -> Iterator[tuple[str, str]]:
    """Prediction and measurement side by side, as headings and tables: where they differ, or where every request is shown."""
    if not _shows_sides(summary) or summary.prediction is None:
        return
    yield "Predicted against measured (tokens of one repeat)", _by_prediction(summary, style)
    if summary.prediction.exact and summary.prediction.differences:
        yield "Requests that differ (device + host + computed)", _differing_requests(summary.prediction, style)


def rates_line(summary: Summary) -> str:
    """The rates of the predicted times that the report shows, and how well they fit what they come from; empty where it shows none."""
    rates = summary.rates
    if rates is None or not (summary.simulated or _shows_sides(summary)):
        return ""
    parts = [f"{rates['overhead_ms']:.1f} ms"]
    parts += [f"{what} ÷ {rates[name]:,.0f} tokens/s" for what, name in (("computed", "prefill"), ("loaded", "restore")) if rates[name]]
    text = f"Predicted TTFT = {' + '.join(parts)}"
    fit = rates["fit"]
    if fit is None:
        return f"{text}, as given."
    run = fit["run"] if summary.simulated else "this run"
    errors = f"median {fit['median_error'] * 100:.1f} %, worst {fit['worst_error'] * 100:.0f} %"
    return f"{text}; fitted to {fit['requests']:,} requests of {run} (relative error: {errors})."


def _shows_sides(summary: Summary) -> bool:
    return summary.prediction is not None and (bool(summary.prediction.differences) or summary.documents is not None)


def _by_prediction(summary: Summary, style: Style) -> str:
    """Predicted against measured: of each arm and pass three rows, the last one measured − predicted (TTFT: as a share)."""
    rows = [[row.arm, row.pass_label, *line] for row in summary.passes for line in _sides(row)]
    return table(["arm", "pass", "tokens", *_TIERS, "TTFT p50"], 3, rows, style)


def _differing_requests(agreement: Agreement, style: Style) -> str:
    """The first requests that were not as predicted, as device + host + computed tokens."""
    rows = [[one.request_id, _sum(one.predicted), _sum(one.measured)] for one in agreement.differences[:SHOWN]]
    drawn, rest = table(["request", "predicted", "measured"], 1, rows, style), len(agreement.differences) - SHOWN
    return drawn if rest <= 0 else with_rest(drawn, f"... and {rest:,} more (--format json has all)", style)


def _sides(row: PassRow) -> Iterator[list[Cell]]:
    """Prediction, measurement and difference of one pass."""
    foreseen, measured = row.foreseen, row.ttft_ms.p50
    own: list[Cell] = ["measured", *_tiers(row), decimal(measured)]
    if foreseen is None:
        yield ["not predicted", *[UNKNOWN] * 4]
        yield own
        return
    host = foreseen.host if row.tier else NO_TIER
    yield ["predicted" if foreseen.exact else "estimate", foreseen.device, host, foreseen.computed, decimal(foreseen.ttft_ms)]
    yield own
    change = None if measured is None or not foreseen.ttft_ms else measured / foreseen.ttft_ms - 1
    tiers: list[Cell] = [None] * 3 if foreseen.difference is None else list(map(_signed, foreseen.difference))
    yield ["difference", tiers[0], tiers[1] if row.tier else NO_TIER, tiers[2], UNKNOWN if change is None else _per_cent(change)]


def _as_predicted(foreseen: Foreseen | None) -> Cell:
    if foreseen is None or foreseen.difference is None:
        return None
    return "same" if not foreseen.differing else _sum((foreseen.device, foreseen.host, foreseen.computed))


def _sum(tiers: tuple[int, int, int]) -> Cell:
    return lambda count: " + ".join(map(count, tiers))


def _signed(tokens: int) -> Cell:
    return lambda count: count(tokens) if tokens == 0 else f"{'+' if tokens > 0 else '−'}{count(abs(tokens))}"


def _per_cent(share: float) -> str:
    return f"{round(share * 100, 1) + 0.0:+.1f} %".replace("-", "−")


def _tiers(row: PassRow | SourceRow | DocumentRow) -> list[Cell]:
    """Tokens by tier; an arm without a tier has no host column to fill, which is not the same as an unknown count."""
    return [row.device, row.host if row.tier else NO_TIER, row.computed]
