"""The options of runs as a JSON Schema: what ``config`` of a manifest may hold."""

from __future__ import annotations

from typing import Any

from kvbench.experiments.composed import compose
from kvbench.experiments.registry import experiments


def options_schema() -> dict[str, Any]:
    """An object with a property for each option of any run; where experiments differ in what one may be, any of it is allowed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, experiment in experiments().items():
        for runner in experiment.runners:
            for option, schema in compose(name, runner).model_json_schema(mode="serialization")["properties"].items():
                plain = {key: value for key, value in schema.items() if key != "title"}
                if plain not in found.setdefault(option, []):
                    found[option].append(plain)
    properties = {option: kinds[0] if len(kinds) == 1 else _any_of(kinds) for option, kinds in sorted(found.items())}
    return {"type": "object", "properties": properties, "required": ["experiment", "runner"]}


def _any_of(kinds: list[dict[str, Any]]) -> dict[str, Any]:
    """Any of these, said once where they agree."""
    shared = {key: value for key, value in kinds[0].items() if key != "default" and all(kind.get(key) == value for kind in kinds)}
    left = [{key: value for key, value in kind.items() if key not in ("default", *shared)} for kind in kinds]
    return shared | ({} if not any(left) else {"anyOf": [kind for number, kind in enumerate(left) if kind not in left[:number]]})
