"""A comparison for the summary page of a GitHub job: Markdown below the size that GitHub shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvbench.comparison.compare import Comparison
from kvbench.comparison.verdict import ChangeVerdict
from kvbench.reports import comparison as report

LIMIT = 1024 * 1024
"""Bytes of one step's summary; GitHub drops a longer one whole (its documentation of ``GITHUB_STEP_SUMMARY``: 1 MiB a step)."""


def render(comparison: Comparison, room: int = LIMIT) -> str:
    """The comparison as Markdown of at most ``room`` bytes: if need be without the passes that stayed the same, or the headline alone."""
    for text in _shorter(comparison):
        if len(text.encode()) <= room:
            return text
    return text.encode()[: max(room, 0)].decode(errors="ignore")


def _shorter(comparison: Comparison) -> Iterator[str]:
    title = "### kvbench compare\n\n"
    yield title + report.to_markdown(comparison)
    changed = {(line.arm, line.pass_label) for line in comparison.lines if line.verdict != ChangeVerdict.SAME}
    # whole passes: a count that is left out of a row would look like one that does not exist
    lines = tuple(line for line in comparison.lines if (line.arm, line.pass_label) in changed)
    count = len(comparison.lines) - len(lines)
    left_out = f"{count:,} figures of passes that stayed the same are left out, as this page has a size limit."
    yield title + report.to_markdown(replace(comparison, lines=lines, notes=(*comparison.notes, left_out)))
    yield f"{title}{report.bold_headline(comparison)}\n"
