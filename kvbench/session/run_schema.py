"""The JSON Schema of a run folder: of its manifest, and of the lines beside it."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from kvbench.experiments.options_schema import options_schema
from kvbench.runs.events import EngineEvent
from kvbench.runs.json_schema import document, schema_of
from kvbench.runs.lines import ADDED, PASS, REQUEST
from kvbench.runs.manifest_types import Manifest, ReportedOptions
from kvbench.runs.run_folder import FORMAT

PARTS = {"manifest.json": Manifest, "requests.jsonl": REQUEST, "passes.jsonl": PASS, "events.jsonl": EngineEvent}
"""What each file of a run folder holds: one object, or one a line."""


def part_schema(file: str) -> dict[str, Any]:
    """The schema of one file of a run folder, or of a line of it."""
    return document(f"{FORMAT} {file}", _with_options(schema_of(PARTS[file], ADDED)))


def run_schema() -> dict[str, Any]:
    """The schema of a whole run folder: an object with a property a file, a file of lines as an array."""
    files = {name: list[kind] if name.endswith(".jsonl") else kind for name, kind in PARTS.items()}  # type: ignore[valid-type]
    folder = TypedDict("folder", files)  # type: ignore[misc]
    folder.__doc__ = "A run folder: a property for each file; of a file of lines, an item for each line."
    return document(FORMAT, _with_options(schema_of(folder, ADDED)))


def _with_options(schema: dict[str, Any]) -> dict[str, Any]:
    """With the options that the manifest's configuration may hold."""
    manifest = schema.get("$defs", {}).get(Manifest.__name__, schema)
    if "config" in manifest["properties"]:
        manifest["properties"]["config"] = options_schema() | {"description": manifest["properties"]["config"]["description"]}
        del schema["$defs"][ReportedOptions.__name__]
    return schema
