"""The summary as json, for programs: at full precision; unknown is null."""

from __future__ import annotations

import json

from kvbench.summary.side_by_side import SideBySide
from kvbench.summary.summary import Summary


def to_json(summary: Summary) -> str:
    """The summary as one JSON document."""
    return _json(summary.to_json())


def json_of_several(side: SideBySide) -> str:
    """Several summaries as one JSON document."""
    return _json(side.to_json())


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
