"""JSON Schemas of what kvbench writes, generated from the types of what is written."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _AsWritten(GenerateJsonSchema):
    """A field of a dataclass is always written, also where it has a default; of a mapping, those that are not marked as left out."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return super().field_is_required(field, total) if field["type"] == "typed-dict-field" else True

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])


def schema_of(kind: Any, optional: Mapping[str, Collection[str]] | None = None) -> dict[str, Any]:
    """The schema of a type as JSON holds it: every field, its type, and the docstrings as descriptions.

    Objects may have further fields: a format gains fields without a new version, and readers leave out what they do not know.

    Args:
        kind: a dataclass, a TypedDict, a model, or what is made of such.
        optional: fields that are not always there, by the name of their class.
    """
    schema: dict[str, Any] = TypeAdapter(kind).json_schema(mode="serialization", schema_generator=_AsWritten)
    for name, fields in (optional or {}).items():
        found = schema.get("$defs", {}).get(name, schema if schema.get("title") == name else {})
        if "required" in found:
            found["required"] = [field for field in found["required"] if field not in fields]
    tidied: dict[str, Any] = _tidied(schema)
    return tidied


def document(title: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as a document of its own, named by the format that it describes."""
    return {"$schema": DIALECT, "title": title, **{key: value for key, value in schema.items() if key != "title"}}


def _tidied(part: Any) -> Any:
    """The part with descriptions as plain text: a docstring's lines joined, and its marks taken out."""
    if isinstance(part, list):
        return [_tidied(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {key: _plain(value) if key == "description" and isinstance(value, str) else _tidied(value) for key, value in part.items()}


def _plain(text: str) -> str:
    return re.sub(r"\bNone\b", "null", " ".join(re.sub(r":\w+:`~?([^`]+)`|``([^`]+)``", r"\1\2", text).split()))
