"""A log as a table: CSV, JSON lines, a list of objects or one object, and what the tools that are known make of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.analysis.logs.reader import flat
from kvbench.analysis.logs.registry import reader_of
from kvbench.errors import UsageError


def read_log(path: Path, as_table: bool = False) -> pd.DataFrame:
    """The log, a row a request: by the reader of the tool that wrote it, else as it is, nested objects by dotted names too.

    Args:
        as_table: as it is, whatever wrote it.

    Raises:
        UsageError: it cannot be read.
    """
    if path.is_dir():
        raise UsageError(f"--csv {path}: a folder, and not a log; if it is a run folder, `kvbench report {path}` shows it")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from None
    try:
        table = _of_csv(path, text) if text.lstrip()[:1] not in ("{", "[") else None
        objects = _objects(text) if table is None else [dict(zip(table.columns, row, strict=True)) for row in table.values]
    except (ValueError, RecursionError, csv.Error) as error:
        raise UsageError(f"{path}: is neither CSV nor JSON lines ({error})") from None
    if not all(isinstance(item, dict) for item in objects):
        raise UsageError(f"{path}: a JSON object a line is expected")
    reader = reader_of(objects[0]) if objects and not as_table else None
    if reader is None and table is not None:
        return table
    try:
        return pd.DataFrame(list(map(flat, objects) if reader is None else reader.rows(objects)), dtype=object)
    except RecursionError:
        raise UsageError(f"{path}: its objects are nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}{f' (read as {reader.about})' if reader else ''}") from None


def _objects(text: str) -> Any:
    """The lines' objects, the items of a list, or the one object of a file over several lines.

    Raises:
        ValueError: it is none of these.
    """
    try:
        return json.loads(text) if text.lstrip()[0] == "[" else list(_json_lines(text))
    except ValueError:
        try:
            return [json.loads(text)]
        except ValueError:
            pass
        raise


def _json_lines(text: str) -> Iterator[Any]:
    """The lines' values; only ``\\n`` ends a line, as a prompt may hold what Unicode calls an end of one."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number}: {error.msg}") from None


def _of_csv(path: Path, text: str) -> pd.DataFrame:
    """The rows as words. Not by pandas, which takes the first column for row names where rows end with a comma, and ``NA`` for nothing.

    Raises:
        UsageError: a row has more fields than the header. Empty ones at its end, as commas there make them, are left out.
    """
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # a prompt may be longer than the module's own limit
    lines = csv.reader(StringIO(text, newline=""), skipinitialspace=True, strict=True)
    header = next((line for line in lines if "".join(line).strip()), None)
    if header is None:
        raise csv.Error("it is empty")
    header = [name.strip() for name in _without_end(header, 0)]
    rows: list[list[str | None]] = []
    for line in lines:
        fields = _without_end(line, len(header))
        if len(fields) > len(header):
            here = f"{path}, line {lines.line_num}"
            raise UsageError(f"{here}: {len(fields)} fields under a header of {len(header)}; quote a field that holds a comma")
        if line and line != [""]:
            rows.append([*fields, *[None] * (len(header) - len(fields))])
    return pd.DataFrame(rows, columns=pd.Index(header, dtype=object), dtype=object)


def _without_end(fields: list[str], least: int) -> list[str]:
    """The fields without empty ones at the end, but for as many as there must be."""
    count = len(fields)
    while count > least and not fields[count - 1].strip():
        count -= 1
    return fields[:count]
