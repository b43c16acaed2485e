"""Checks of what kvbench wrote against its schemas, stricter than the schemas: here a field that no schema knows is a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from kvbench.cli.schema import schema_named

LINES = {"requests.jsonl": "request", "passes.jsonl": "pass", "events.jsonl": "event"}


def closed(schema: Any) -> Any:
    """The schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {key: closed(part) for key, part in schema.items()}
    return {**parts, "additionalProperties": False} if isinstance(parts.get("properties"), dict) and "type" in parts else parts


@cache
def validator(name: str) -> Draft202012Validator:
    """Of a schema by its name, closed."""
    schema = closed(schema_named(name))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def faults(name: str, value: Any) -> list[str]:
    """What is wrong with a value, the first few things."""
    found = validator(name).iter_errors(value)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error, _ in zip(found, range(3), strict=False)]


def faults_of_folder(path: Path) -> list[str]:
    """What is wrong with a run folder, file by file, and with the folders of its controls; a line that was cut is no fault."""
    named = [(path.name, item) for item in faults("manifest", json.loads((path / "manifest.json").read_text(encoding="utf-8")))]
    for file, name in LINES.items():
        for number, line in enumerate(lines_of(path / file)):
            named += [(f"{path.name}/{file}:{number}", item) for item in faults(name, line)]
    found = [f"{place}: {item}" for place, item in named]
    return [*found, *(fault for control in sorted(path.glob("control-*")) for fault in faults_of_folder(control))]


def lines_of(file: Path) -> Iterator[Any]:
    """The objects of a file of lines, but for a last one that was cut."""
    lines = file.read_text(encoding="utf-8").split("\n")
    for line in lines[:-1]:
        yield json.loads(line)
