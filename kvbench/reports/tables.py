"""The tables, as rich tables that fit 80 columns; the terminal and markdown differ only in how they draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO

from rich.box import Box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kvbench.analysis.cache import LoadCost
from kvbench.analysis.prediction import Agreement
from kvbench.analysis.reading import times
from kvbench.analysis.summary import DocumentRow, PassRow, SourceRow, Summary

WIDTH = 80
UNKNOWN = "–"
NO_TIER = "-"
Count = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Style:
    """How a format draws a table: its box, whether the box has sides, and the padding of cells to try, widest first."""

    box: Box | None
    sides: bool
    paddings: tuple[tuple[int, int, int, int], ...]


def by_pass(summary: Summary, style: Style) -> str:
    """The main table: a row an arm and pass."""
    failed = any(row.failed for row in summary.passes)
    header = ["arm", "pass", "n", *(["failed"] if failed else []), "TTFT p50", "mean", f"vs {summary.baseline}", "pass s"]

    def cells(row: PassRow, count: Count) -> list[str]:
        ttft = row.ttft_ms
        counts = [count(ttft.n), *([count(row.failed)] if failed else [])]
        return [
            row.arm,
            row.pass_label,
            *counts,
            _decimal(ttft.p50),
            _decimal(ttft.mean),
            _times(row),
            _decimal(row.pass_s),
            *_tiers(row, count),
        ]

    return _fitting([*header, *_TIERS], 2, lambda count: [cells(row, count) for row in summary.passes], style)


def by_source(summary: Summary, style: Style) -> str:
    """The requests by where their prompt came from; tokens are medians."""

    def cells(row: SourceRow, count: Count) -> list[str]:
        return [
            row.arm,
            row.source,
            count(row.ttft_ms.n),
            _decimal(row.ttft_ms.p50),
            _decimal(row.ttft_ms.mean),
            *_tiers(row, count),
        ]

    header = ["arm", "source", "n", "TTFT p50", "mean", *_TIERS]
    return _fitting(header, 2, lambda count: [cells(row, count) for row in summary.sources], style)


def by_document(rows: Sequence[DocumentRow], style: Style) -> str:
    """Every request of every pass, in the order in which it was read."""
    failed = any(row.failed for row in rows)

    def cells(row: DocumentRow, count: Count) -> list[str]:
        counts = [count(row.failed)] if failed else []
        return [row.arm, row.pass_label, row.document, *counts, _decimal(row.ttft_ms), *_tiers(row, count)]

    header = ["arm", "pass", "document", *(["failed"] if failed else []), "TTFT", *_TIERS]
    return _fitting(header, 3, lambda count: [cells(row, count) for row in rows], style)


def load_lines(loads: Sequence[LoadCost]) -> Iterator[str]:
    """Load against compute, a line an arm."""
    for cost in loads:
        rate = "" if cost.gib_per_s is None else f" ({cost.gib_per_s:.1f} GiB/s)"
        ratio = "" if cost.ratio is None else f", {cost.ratio:.1f}x"
        yield (
            f"A load from the {cost.arm} tier: {cost.tokens:,.0f} tokens in {cost.load_ms:,.1f} ms{rate}; "
            f"computing as many takes {cost.compute_ms:,.0f} ms{ratio}."
        )


def prediction_line(agreement: Agreement) -> str:
    """Prediction against measurement in one line."""
    same = agreement.requests - len(agreement.differences)
    kind = "Predicted" if agreement.exact else "Estimated (requests overlap, so no promise)"
    how_many = f"{same:,} of {agreement.requests:,} requests"
    return f"{kind} by the simulator, profile {agreement.profile}: tokens by tier of {how_many} are as foreseen."


_TIERS = ["device", "host", "computed"]


def _tiers(row: PassRow | SourceRow | DocumentRow, count: Count) -> list[str]:
    """Tokens by tier; an arm without a tier has no host column to fill, which is not the same as an unknown count."""
    return [count(row.device), count(row.host) if row.tier else NO_TIER, count(row.computed)]


def _decimal(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _times(row: PassRow) -> str:
    return UNKNOWN if row.speedup.p50 is None else times(row.speedup.p50)


def _grouped(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _plain(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _fitting(header: list[str], words: int, rows: Callable[[Count], list[list[str]]], style: Style) -> str:
    """The table at the widest padding that fits; then without the separators of thousands; at last names are folded.

    ``words``: how many leading columns hold names and are aligned left; the others hold numbers, which are never cut.
    """
    attempts = [*((_grouped, padding) for padding in style.paddings), (_plain, style.paddings[-1])]
    console = Console(file=StringIO(), width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    for count, padding in attempts:
        table = _table(header, words, rows(count), style, padding)
        if Measurement.get(console, console.options.update(width=10 * WIDTH), table).maximum <= WIDTH:
            break
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines() if line.strip())


def _table(header: list[str], words: int, rows: list[list[str]], style: Style, padding: tuple[int, int, int, int]) -> Table:
    table = Table(box=style.box, show_edge=style.sides, pad_edge=style.sides, padding=padding)
    for place, name in enumerate(header):
        word = place < words
        table.add_column(Text(name), justify="left" if word else "right", no_wrap=not word, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
