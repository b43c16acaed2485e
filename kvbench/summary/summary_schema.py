"""The JSON Schema of a summary, the format ``kvbench.summary/1``, as :meth:`kvbench.summary.summary.Summary.to_json` writes it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_type_hints

from typing_extensions import TypedDict

from kvbench.experiments.readings import row_types
from kvbench.runs.json_schema import document, schema_of
from kvbench.summary.summary import FORMAT, Summary

_OTHERWISE = ("title", "link", "rows", "reading", "shows_load")
"""Fields of a summary that are written otherwise than as they are, or not at all."""

_OPTIONAL = {"PassRow": ("metrics",)}


def summary_schema() -> dict[str, Any]:
    """The schema; rows that only some experiments have are there of every run, empty where there are none."""
    hints = get_type_hints(Summary)
    own = {item.name: hints[item.name] for item in fields(Summary) if item.name not in _OTHERWISE}
    rows = {key: tuple[dict[str, Any] if kind is None else kind, ...] for key, kind in row_types().items()}  # type: ignore[misc]
    written = {"format": Literal[FORMAT], "title": str, **own, **rows, "link": str | None}
    kind = TypedDict("summary", written)  # type: ignore[misc]
    kind.__doc__ = Summary.__doc__
    return document(FORMAT, schema_of(kind, _OPTIONAL))
