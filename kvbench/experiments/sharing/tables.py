"""The tables of experiment ``sharing``: the blocks that were held, and the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.drawing.layout import NO_TIER, UNKNOWN, Count, Style, fitting
from kvbench.drawing.numbers import decimal
from kvbench.experiments.sharing.metrics import REFERENCE, SharingRow

MIB = 2**20


def tables(rows: Sequence[SharingRow], style: Style) -> Iterator[tuple[str, str]]:
    """Headings and tables."""
    if not rows:
        return
    yield "Blocks held in the fullest step; mean: of all steps; shared: entries ÷ blocks", _memory(rows, style)
    yield f"Work; same: answers with {REFERENCE}'s tokens; vs: tokens/s ÷ {REFERENCE}'s", _work(rows, style)


def _memory(rows: Sequence[SharingRow], style: Style) -> str:
    def cells(row: SharingRow, count: Count) -> list[str]:
        saved = NO_TIER if row.arm == REFERENCE else UNKNOWN if row.saved is None else f"{row.saved * 100:.1f} %".replace("-", "−")
        held = [count(row.blocks), count(row.mean_blocks), _mib(row.blocks, row), saved, count(row.entries)]
        shared = UNKNOWN if row.shared is None else f"{row.shared:.2f}x"
        return [row.pass_name, row.arm, f"{row.finished}/{row.answers}", *held, shared]

    header = ["pass", "arm", "answers", "blocks", "mean", "MiB", "saved", "entries", "shared"]
    return fitting(header, 2, lambda count: [cells(row, count) for row in rows], style)


def _work(rows: Sequence[SharingRow], style: Style) -> str:
    same, waited = any(row.same_outputs is not None for row in rows), any(row.waited_forks for row in rows)

    def cells(row: SharingRow, count: Count) -> list[str]:
        reference = row.arm == REFERENCE
        outputs = NO_TIER if reference else UNKNOWN if row.same_outputs is None else f"{row.same_outputs}/{row.compared_outputs}"
        speed = NO_TIER if reference else UNKNOWN if row.speed is None else f"{row.speed:.2f}x"
        work = [count(row.copied_blocks), _mib(row.copied_blocks, row), decimal(row.tokens_per_s), speed, decimal(row.pass_s)]
        return [row.pass_name, row.arm, *([outputs] if same else []), *work, *([count(row.waited_forks)] if waited else [])]

    header = ["pass", "arm", *(["same"] if same else []), "copied", "MiB", "tokens/s", "vs", "pass s", *(["waited"] if waited else [])]
    return fitting(header, 2, lambda count: [cells(row, count) for row in rows], style)


def _mib(blocks: int | None, row: SharingRow) -> str:
    return UNKNOWN if blocks is None or row.block_bytes is None else f"{blocks * row.block_bytes / MIB:,.1f}"
