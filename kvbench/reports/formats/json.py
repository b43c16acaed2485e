"""The summary as json, for programs: at full precision; unknown is null."""

from __future__ import annotations

import json
from typing import Any, Protocol

from kvbench.drawing.clean import clean_json
from kvbench.reports.formats.format import ReportFormat


class Plain(Protocol):
    """What can be told in plain objects: a summary, several runs, a plan, a comparison."""

    def to_json(self) -> dict[str, Any]:
        """The objects."""


def to_json(shown: Plain) -> str:
    """All of it as one JSON document."""
    return clean_json(json.dumps(shown.to_json(), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


FORMAT = ReportFormat("json", "the whole summary", 5, lambda run: to_json(run.summary), lambda runs: to_json(runs.side))
