"""The tables of docs/run-folder.md, as ``kvbench schema`` has them.

python -m tests.formats.page        write them into the page
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvbench.cli.schema import schema_named

PAGE = Path(__file__).parents[2] / "docs" / "run-folder.md"
MARKED = re.compile(r"(<!-- fields: (\w+)(?:\.(\w+))? -->\n).*?(<!-- end -->\n)", re.DOTALL)


def table(name: str, part: str | None) -> str:
    """The fields of a schema, or of one of its parts, a line each."""
    schema = schema_named(name)
    found = schema if part is None else schema["$defs"][part]
    return "".join(f"| {' | '.join(line)} |\n" for line in (("field", "type", "meaning"), ("---",) * 3, *_lines(found)))


def _lines(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for field, kind in schema["properties"].items():
        left_out = "" if field in schema["required"] else ", optional"
        yield f"`{field}`", _type(kind) + left_out, str(kind.get("description", "")).replace("|", "\\|")


def _type(kind: Mapping[str, Any]) -> str:
    """A type in words."""
    if "$ref" in kind:
        return str(kind["$ref"]).rpartition("/")[2]
    if "anyOf" in kind:
        return " or ".join(map(_type, kind["anyOf"]))
    if "const" in kind:
        return f"`{kind['const']}`"
    if "enum" in kind:
        return "one of " + ", ".join(f"`{word}`" for word in kind["enum"])
    if kind.get("type") == "array":
        return f"list of {_type(kind['items'])}" if "items" in kind else f"[{', '.join(map(_type, kind['prefixItems']))}]"
    if kind.get("type") == "object" and isinstance(kind.get("additionalProperties"), dict):
        return f"object of {_type(kind['additionalProperties'])}"
    return str(kind.get("type", "any"))


def whole(page: str) -> str:
    """The page with its tables as they are now."""
    return MARKED.sub(lambda found: found[1] + table(found[2], found[3]) + found[4], page)


if __name__ == "__main__":
    PAGE.write_text(whole(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
