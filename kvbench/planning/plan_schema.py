"""The JSON Schema of a plan: of documents (``kvbench.plan/1``), or of a trace (``kvbench.trace-plan/1``)."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_type_hints

from typing_extensions import TypedDict

from kvbench.planning import result, trace_plan
from kvbench.runs.json_schema import document, schema_of


def plan_schema() -> dict[str, Any]:
    """The schema of what ``kvbench plan --format json`` prints, with ``--trace`` and without."""
    kinds = _written(result.Plan, result.FORMAT, title=str) | _written(trace_plan.TracePlan, trace_plan.FORMAT)
    return document(result.FORMAT, schema_of(kinds))


def _written(plan: type, version: str, **otherwise: Any) -> Any:
    """A plan as its ``to_json`` writes it: its fields, with its format, and some of them as another type."""
    hints = get_type_hints(plan)
    written = {"format": Literal[version], **{item.name: hints[item.name] for item in fields(plan)}, **otherwise}
    kind = TypedDict(plan.__name__, written)  # type: ignore[misc]
    kind.__doc__ = plan.__doc__
    return kind
