"""The format ``kvbench.sweep/1`` of ``sweep.json`` as types, and its JSON Schema."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import with_config
from typing_extensions import TypedDict

from kvbench.runs.json_schema import document, schema_of
from kvbench.runs.sweep_folder import FORMAT


@with_config(use_attribute_docstrings=True)
class SweepPoint(TypedDict):
    """One value of the option."""

    value: Any
    """The value."""
    folder: str
    """Name of its run folder, below the sweep's."""
    own: dict[str, Any]
    """The options in which its configuration differs from that of other points, by name with underscores."""
    error: str | None
    """Why the last attempt could not be done; null: there was no such attempt."""


@with_config(use_attribute_docstrings=True)
class SweepFile(TypedDict):
    """A sweep: a run for each value of one option. Written before the first of them runs."""

    format: Literal["kvbench.sweep/1"]
    """Name and version of the format."""
    kvbench: str
    """Version of kvbench."""
    command: list[str]
    """The command line."""
    key: str
    """The option, by name with underscores."""
    common: dict[str, Any]
    """The options that are the same at every point."""
    points: list[SweepPoint]
    """The values in their order."""


def sweep_schema() -> dict[str, Any]:
    """The schema of ``sweep.json``."""
    return document(FORMAT, schema_of(SweepFile))
