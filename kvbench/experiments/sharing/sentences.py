"""Sentences that read a run of ``sharing``: what copy-on-write saved, and what it did to the speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.experiments.sharing.metrics import REFERENCE, SharingRow

MIB = 2**20


def read(rows: Sequence[SharingRow]) -> Iterator[str]:
    """A sentence for each pass of each arm that shares."""
    base = {row.pass_name: row for row in rows if row.arm == REFERENCE}
    for row in rows:
        other = base.get(row.pass_name)
        if row.arm != REFERENCE and other is not None and row.blocks is not None and other.blocks is not None:
            yield f"{_subject(row)}: {_memory(row, row.blocks, other.blocks)}{_copies(row, other)}{_speed(row)}."
    if rows and not any(row.saved is not None for row in rows):
        yield f"One of the arms did not end, so there is nothing to compare: what is saved stands beside {REFERENCE}."


def _subject(row: SharingRow) -> str:
    count = row.answers // max(row.requests, 1)
    kind = {"sampling": ("sample", "samples"), "beam": ("beam", "beams")}.get(row.pass_name, ("answer", "answers"))
    return f"{count:,} {kind[count != 1]} of each prompt"


def _memory(row: SharingRow, own: int, copies: int) -> str:
    tables = f"each in {row.shared:.1f} block tables"
    if own == copies:
        return f"{row.arm} held {own:,} blocks at most, as many as {REFERENCE} ({tables})"
    mib = None if row.block_bytes is None else abs(copies - own) * row.block_bytes / MIB
    size = "" if mib is None else f"{mib:,.1f} MiB, " if mib >= 1 else f"{mib:.2g} MiB, "
    share, less = abs(1 - own / copies) * 100, "less" if own < copies else "more"
    return f"{row.arm} held {own:,} blocks at most where {REFERENCE} held {copies:,} ({size}{share:.0f} % {less}; {tables})"


def _copies(row: SharingRow, other: SharingRow) -> str:
    if row.copied_blocks is None or other.copied_blocks is None or not other.copied_blocks:
        return ""
    return f", and copied {row.copied_blocks:,} in place of {other.copied_blocks:,}"


def _speed(row: SharingRow) -> str:
    if row.speed is None or row.tokens_per_s is None:
        return ""
    text = f"; {row.tokens_per_s:,.0f} output tokens/s, {row.speed:.2f}x"
    if row.speed_interval is None:
        return f"{text}, with nothing to tell how much of it is noise (--repeats 3)"
    low, high = row.speed_interval
    return f"{text} [95 % {low:.2f} to {high:.2f}]{', no clear difference' if low <= 1 <= high else ''}"
