"""The tables; the formats differ only in how they draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kvbench.analysis.cache import LoadCost, SourceRow
from kvbench.analysis.latency import ScheduledRow
from kvbench.analysis.pass_rows import DocumentRow, PassRow
from kvbench.analysis.prediction import Agreement, Foreseen
from kvbench.analysis.spread import RepeatRow
from kvbench.analysis.stalls import MULTIPLE, Stalls
from kvbench.drawing.layout import NO_TIER, UNKNOWN, Count, Style, fitting, grouped, with_rest
from kvbench.drawing.numbers import decimal, times
from kvbench.metrics.metric import Metric, whole
from kvbench.metrics.registry import metrics
from kvbench.summary.summary import Summary

SHOWN = 10
"""Requests that differ from the prediction are listed up to so many."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of passes: its place from the left, its head, and a row's cell."""

    place: float
    header: str
    cell: Callable[[PassRow, Count], str]


_NOISE = 3.5
"""The place of the noise: behind the times."""


def by_pass(summary: Summary, style: Style) -> str:
    """The main table: a row an arm and pass; with repeats, by how much each differs from itself."""
    shown = sorted(_columns(summary), key=lambda column: column.place)
    rows = summary.passes
    return fitting([one.header for one in shown], 2, lambda count: [[one.cell(row, count) for one in shown] for row in rows], style)


def _columns(summary: Summary) -> Iterator[Column]:
    """What the row is, the noise, and the metrics (:mod:`kvbench.metrics`)."""
    yield Column(-3, "arm", lambda row, _: row.arm)
    yield Column(-2, "pass", lambda row, _: row.pass_label)
    yield Column(-1, "n", lambda row, count: count(row.ttft_ms.n or row.answered))
    if any(row.noise is not None for row in summary.passes):
        yield Column(_NOISE, "noise", lambda row, _: _per_cent_of(row.noise))
    for metric in metrics().values():
        if metric.column is not None and not (metric.hidden_at_0 and not any(map(metric.of_row, summary.passes))):
            yield Column(metric.column, metric.header.replace("{baseline}", str(summary.baseline)), partial(_metric, metric))


def _metric(metric: Metric, row: PassRow, count: Count) -> str:
    if metric.needs_tier and not row.tier:
        return NO_TIER
    value = metric.of_row(row)
    if metric.show is whole:
        return count(value)
    return UNKNOWN if value is None else (metric.cell or metric.show)(value)


def by_source(summary: Summary, style: Style) -> str:
    """The requests by where their prompt came from; tokens are medians."""

    def cells(row: SourceRow, count: Count) -> list[str]:
        return [
            row.arm,
            row.source,
            count(row.ttft_ms.n or row.answered),
            decimal(row.ttft_ms.p50),
            decimal(row.ttft_ms.mean),
            *_tiers(row, count),
        ]

    header = ["arm", "source", "n", "TTFT p50", "mean", *_TIERS]
    return fitting(header, 2, lambda count: [cells(row, count) for row in summary.sources], style)


def by_repeat(rows: Sequence[RepeatRow], style: Style) -> str:
    """TTFT of each repeat by itself; tail percentiles where any repeat has enough samples for one."""
    failed, tails = any(row.failed for row in rows), any(row.ttft_ms.p90 is not None for row in rows)

    def cells(row: RepeatRow, count: Count) -> list[str]:
        ttft = row.ttft_ms
        counts = [count(row.repeat), count(ttft.n), *([count(row.failed)] if failed else [])]
        times = [ttft.p50, ttft.mean, ttft.std, ttft.min, ttft.max, *([ttft.p90, ttft.p99] if tails else [])]
        return [row.arm, row.pass_label, *counts, *(decimal(time) for time in times)]

    header = ["arm", "pass", "repeat", "n", *(["failed"] if failed else []), "TTFT p50", "mean", "std", "min", "max"]
    return fitting([*header, *(["p90", "p99"] if tails else [])], 2, lambda count: [cells(row, count) for row in rows], style)


def by_schedule(rows: Sequence[ScheduledRow], style: Style) -> str:
    """TTFT from when each request should have been sent, and how late it was sent; milliseconds."""

    def cells(row: ScheduledRow, count: Count) -> list[str]:
        ttft, late = row.ttft_ms, row.late_ms
        times = [ttft.p50, ttft.mean, ttft.p90, ttft.p99, late.p50, late.max]
        return [row.arm, row.pass_label, count(ttft.n), *(decimal(time) for time in times)]

    header = ["arm", "pass", "n", "TTFT p50", "mean", "p90", "p99", "late p50", "late max"]
    return fitting(header, 2, lambda count: [cells(row, count) for row in rows], style)


def by_document(rows: Sequence[DocumentRow], style: Style, noun: str = "document") -> str:
    """Every request of every pass, in the order in which it was read; where anything was predicted, whether it came so."""
    failed = any(row.failed for row in rows)
    predicted = any(row.foreseen for row in rows)

    def cells(row: DocumentRow, count: Count) -> list[str]:
        counts = [count(row.failed)] if failed else []
        told = [_as_predicted(row.foreseen, count)] if predicted else []
        return [row.arm, row.pass_label, row.document, *counts, decimal(row.ttft_ms), *_tiers(row, count), *told]

    header = ["arm", "pass", noun, *(["failed"] if failed else []), "TTFT", *_TIERS, *(["predicted"] if predicted else [])]
    return fitting(header, 3, lambda count: [cells(row, count) for row in rows], style)


def documents_table(summary: Summary, style: Style) -> Iterator[tuple[str, str]]:
    """Heading and table of the requests one by one, if they were asked for; where no document is read again, they are just requests."""
    noun = "document" if summary.passes else "request"
    if summary.documents:
        yield f"By {noun} (TTFT: median over repeats)", by_document(summary.documents, style, noun)


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

    def cells(count: Count) -> list[list[str]]:
        return [[row.arm, row.pass_label, *line] for row in summary.passes for line in _sides(row, count)]

    return fitting(["arm", "pass", "tokens", *_TIERS, "TTFT p50"], 3, cells, style)


def _differing_requests(agreement: Agreement, style: Style) -> str:
    """The first requests that were not as predicted, as device + host + computed tokens."""

    def cells(count: Count) -> list[list[str]]:
        found = agreement.differences[:SHOWN]
        return [[one.request_id, _sum(one.predicted, count), _sum(one.measured, count)] for one in found]

    table = fitting(["request", "predicted", "measured"], 1, cells, style)
    rest = len(agreement.differences) - SHOWN
    return table if rest <= 0 else with_rest(table, f"... and {rest:,} more (--format json has all)", style)


def _sides(row: PassRow, count: Count) -> Iterator[list[str]]:
    """Prediction, measurement and difference of one pass."""
    foreseen, measured = row.foreseen, row.ttft_ms.p50
    tiers = [count(row.device), count(row.host) if row.tier else NO_TIER, count(row.computed)]
    if foreseen is None:
        yield ["not predicted", *[UNKNOWN] * 4]
        yield ["measured", *tiers, decimal(measured)]
        return
    host = count(foreseen.host) if row.tier else NO_TIER
    yield [
        "predicted" if foreseen.exact else "estimate",
        count(foreseen.device),
        host,
        count(foreseen.computed),
        decimal(foreseen.ttft_ms),
    ]
    yield ["measured", *tiers, decimal(measured)]
    change = None if measured is None or not foreseen.ttft_ms else measured / foreseen.ttft_ms - 1
    device, host, computed = (UNKNOWN,) * 3 if foreseen.difference is None else [_signed(part, count) for part in foreseen.difference]
    yield ["difference", device, host if row.tier else NO_TIER, computed, UNKNOWN if change is None else _per_cent(change)]


def _as_predicted(foreseen: Foreseen | None, count: Count) -> str:
    if foreseen is None or foreseen.difference is None:
        return UNKNOWN
    return "same" if not foreseen.differing else _sum((foreseen.device, foreseen.host, foreseen.computed), count)


def _sum(tiers: tuple[int, int, int], count: Count) -> str:
    return " + ".join(count(tokens) for tokens in tiers)


def _signed(tokens: int, count: Count) -> str:
    return count(tokens) if tokens == 0 else f"{'+' if tokens > 0 else '−'}{count(abs(tokens))}"


def _per_cent(share: float) -> str:
    return f"{round(share * 100, 1) + 0.0:+.1f} %".replace("-", "−")


_TIERS = ["device", "host", "computed"]


def _tiers(row: PassRow | SourceRow | DocumentRow, count: Count) -> list[str]:
    """Tokens by tier; an arm without a tier has no host column to fill, which is not the same as an unknown count."""
    return [count(row.device), count(row.host) if row.tier else NO_TIER, count(row.computed)]


def _per_cent_of(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share * 100:.1f} %"


def speedup_of(row: PassRow) -> str:
    """A pass's speedup over the baseline."""
    return UNKNOWN if row.speedup.p50 is None else times(row.speedup.p50)
