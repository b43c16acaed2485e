"""The tables of experiment ``fragmentation``: what ran at once, and what the slots were."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.drawing.layout import NO_TIER, Count, Style, fitting
from kvbench.drawing.numbers import decimal, factor
from kvbench.experiments.fragmentation.metrics import FragmentationRow


def work(rows: Sequence[FragmentationRow], style: Style) -> str:
    """How many requests ran at once, and what they gave."""
    failed = any(row.finished < row.requests for row in rows)

    def cells(row: FragmentationRow, count: Count) -> list[str]:
        first = row.arm == rows[0].arm
        ended = [f"{row.finished}/{row.requests}"] if failed else []
        many = [decimal(row.at_once), NO_TIER if first else factor(row.times), count(row.peak_running), count(row.preemptions)]
        speed = [decimal(row.tokens_per_s), NO_TIER if first else factor(row.speed), count(row.ttft_ms.p50), decimal(row.pass_s)]
        return [row.arm, *ended, *many, *speed]

    header = ["arm", *(["ended"] if failed else []), "at once", "vs", "most", "preempted", "tokens/s", "vs", "TTFT p50", "pass s"]
    return fitting(header, 1, lambda count: [cells(row, count) for row in rows], style)


def slots(rows: Sequence[FragmentationRow], style: Style) -> str:
    """What the slots of the pool were."""

    def cells(row: FragmentationRow) -> list[str]:
        shares = row.shares
        parts = [None] * 5 if shares is None else [shares.used, shares.for_later, shares.never_used, shares.scattered, shares.free]
        return [row.arm, *(_per_cent(part) for part in (*parts, row.waste, row.waste_all, row.waste_end))]

    header = ["arm", "tokens", "for later", "never used", "scattered", "free", "waste", "all steps", "at end"]
    return fitting(header, 1, lambda count: [cells(row) for row in rows], style)


def _per_cent(share: float | None) -> str:
    return decimal(None if share is None else share * 100)
