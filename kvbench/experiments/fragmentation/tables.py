"""The tables of experiment ``fragmentation``: what ran at once, and what the slots were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.drawing.layout import NO_TIER, UNKNOWN, Count, Style, fitting
from kvbench.drawing.numbers import decimal
from kvbench.experiments.fragmentation.metrics import FragmentationRow


def tables(rows: Sequence[FragmentationRow], style: Style) -> Iterator[tuple[str, str]]:
    """Headings and tables."""
    if not rows:
        return
    base = rows[0].arm
    yield f"At once: mean of the steps in which the next found no room; vs: ÷ {base}'s", _work(rows, style)
    yield "Slots of the pool in these steps (%); waste: reserved and empty ÷ reserved", _slots(rows, style)


def _work(rows: Sequence[FragmentationRow], style: Style) -> str:
    failed = any(row.finished < row.requests for row in rows)

    def cells(row: FragmentationRow, count: Count) -> list[str]:
        first = row.arm == rows[0].arm
        ended = [f"{row.finished}/{row.requests}"] if failed else []
        many = [decimal(row.at_once), NO_TIER if first else _times(row.times), count(row.peak_running), count(row.preemptions)]
        speed = [decimal(row.tokens_per_s), NO_TIER if first else _times(row.speed), count(row.ttft_ms.p50), decimal(row.pass_s)]
        return [row.arm, *ended, *many, *speed]

    header = ["arm", *(["ended"] if failed else []), "at once", "vs", "most", "preempted", "tokens/s", "vs", "TTFT p50", "pass s"]
    return fitting(header, 1, lambda count: [cells(row, count) for row in rows], style)


def _slots(rows: Sequence[FragmentationRow], style: Style) -> str:
    def cells(row: FragmentationRow) -> list[str]:
        shares = row.shares
        parts = [None] * 5 if shares is None else [shares.used, shares.for_later, shares.never_used, shares.scattered, shares.free]
        return [row.arm, *(_per_cent(part) for part in (*parts, row.waste, row.waste_all, row.waste_end))]

    header = ["arm", "tokens", "for later", "never used", "scattered", "free", "waste", "all steps", "at end"]
    return fitting(header, 1, lambda count: [cells(row) for row in rows], style)


def _per_cent(share: float | None) -> str:
    return decimal(None if share is None else share * 100)


def _times(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}x"
