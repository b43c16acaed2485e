"""The summary as json, for programs: at full precision; unknown is null."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvbench.reports.formats.format import ReportFormat, RunsReport

if TYPE_CHECKING:
    from kvbench.summary.summary import Summary


def to_json(summary: Summary) -> str:
    """The summary as one JSON document."""
    return _json(summary.to_json())


def render_several(runs: RunsReport) -> str:
    """Several summaries as one JSON document."""
    return _json(runs.side.to_json())


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


FORMAT = ReportFormat("json", "the whole summary", 5, lambda run: to_json(run.summary), render_several)
