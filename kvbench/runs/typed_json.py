"""What was written, read back as the types of what is written: a wrong or missing field is an error that names file, line and field."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from kvbench.errors import UsageError

CHANGED = "the file was changed after the run"


class Part(dict[str, Any]):
    """An object of a file. To ask for a field that it lacks is an error of the file's: which fields there must be follows from others."""

    def __init__(self, where: str, values: dict[str, Any]) -> None:
        super().__init__(values)
        self._where = where

    def __missing__(self, field: str) -> Any:
        raise UsageError(f"{self._where}.{field}: is missing; {CHANGED}")


def parser(kind: Any, fields: Iterable[str] | None = None) -> Callable[[bytes], dict[str, Any]]:
    """A parser of objects of a type, which keeps some fields only, or all (``None``), those that the type does not know too.

    It raises a :class:`pydantic.ValidationError`.
    """
    return _parser(kind, None if fields is None else frozenset(fields))


@cache
def _parser(kind: Any, fields: frozenset[str] | None) -> Callable[[bytes], dict[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    kept = {name: hint for name, hint in hints.items() if fields is None or name in fields}
    line: Any = TypedDict("line", kept)  # type: ignore[misc]
    adapter: TypeAdapter[Any] = TypeAdapter(with_config(ConfigDict(extra="ignore" if fields is not None else "allow"))(line))
    return partial(adapter.validate_json, strict=True)


def is_cut(error: ValidationError) -> bool:
    """Whether the text is no JSON at all, as where it was cut."""
    return error.errors(include_url=False)[0]["type"] == "json_invalid"


def refusal(path: Path, error: ValidationError, line: int | None = None) -> UsageError:
    """The error of a file that holds something else; ``line`` from 1."""
    first = error.errors(include_url=False)[0]
    where = f"{path}" if line is None else f"{path}: line {line}"
    if not first["loc"]:
        return UsageError(f"{where} is not JSON, or no record; {CHANGED}")
    field = ".".join(str(part) for part in first["loc"])
    return UsageError(f"{where}: {field}: {first['msg']}; {CHANGED}")
