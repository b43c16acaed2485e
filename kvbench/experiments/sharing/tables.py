"""The tables of experiment ``sharing``: the blocks that were held, and the work."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.drawing.layout import NO_TIER, UNKNOWN, Count, Style, fitting
from kvbench.drawing.numbers import decimal, factor
from kvbench.experiments.sharing.metrics import REFERENCE, SharingRow

MIB = 2**20


def memory(rows: Sequence[SharingRow], style: Style) -> str:
    """The blocks that were held."""

    def cells(row: SharingRow, count: Count) -> list[str]:
        saved = NO_TIER if row.arm == REFERENCE else UNKNOWN if row.saved is None else f"{row.saved * 100:.1f} %".replace("-", "−")
        held = [count(row.blocks), count(row.mean_blocks), _mib(row.blocks, row), saved, count(row.entries)]
        return [row.pass_name, row.arm, f"{row.finished}/{row.answers}", *held, factor(row.shared)]

    header = ["pass", "arm", "answers", "blocks", "mean", "MiB", "saved", "entries", "shared"]
    return fitting(header, 2, lambda count: [cells(row, count) for row in rows], style)


def work(rows: Sequence[SharingRow], style: Style) -> str:
    """What each pass of an arm took."""
    same, waited = any(row.same_outputs is not None for row in rows), any(row.waited_forks for row in rows)

    def cells(row: SharingRow, count: Count) -> list[str]:
        reference = row.arm == REFERENCE
        outputs = NO_TIER if reference else UNKNOWN if row.same_outputs is None else f"{row.same_outputs}/{row.compared_outputs}"
        speed = NO_TIER if reference else factor(row.speed)
        work = [count(row.copied_blocks), _mib(row.copied_blocks, row), decimal(row.tokens_per_s), speed, decimal(row.pass_s)]
        return [row.pass_name, row.arm, *([outputs] if same else []), *work, *([count(row.waited_forks)] if waited else [])]

    header = ["pass", "arm", *(["same"] if same else []), "copied", "MiB", "tokens/s", "vs", "pass s", *(["waited"] if waited else [])]
    return fitting(header, 2, lambda count: [cells(row, count) for row in rows], style)


def _mib(blocks: int | None, row: SharingRow) -> str:
    return UNKNOWN if blocks is None or row.block_bytes is None else f"{blocks * row.block_bytes / MIB:,.1f}"
