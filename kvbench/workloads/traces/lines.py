"""The objects of a trace file, a line each: JSON lines, rows of CSV, the items of a JSON list, or one object over several lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvbench.errors import UsageError
from kvbench.workloads.traces.line import TraceLine, shown
from kvbench.workloads.traces.registry import reader_of

GZIP = b"\x1f\x8b"
"""How a packed file begins."""


def lines_of(path: Path) -> Iterator[TraceLine]:
    """The objects with their numbers: of the line, or in the list. Blank lines hold none. Only one line is held, of a list all of them.

    Raises:
        UsageError: the file cannot be read, or a line is no object.
    """
    try:
        with path.open("rb") as file:
            head = next((text for text in file if text.strip()), b"").removeprefix(b"\xef\xbb\xbf").strip()
            if head.startswith(GZIP):
                raise UsageError(f"--trace {path}: a gzip file; unpack it first (gunzip --keep)")
            if head[:1] not in (b"{", b"[") and (rows := _rows(path)) is not None:
                yield from rows
                return
            file.seek(0)
            if (items := _items(path, head)) is not None:
                yield from (TraceLine(path, number, _object(path, number, item)) for number, item in enumerate(items, start=1))
                return
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield TraceLine(path, number, _object(path, number, _json(path, number, text)))
    except csv.Error as error:
        raise UsageError(f"--trace {path}: no CSV ({error})") from None
    except OSError as error:
        raise UsageError(f"--trace {path}: cannot be read ({error.strerror})") from None


def _rows(path: Path) -> Iterator[TraceLine] | None:
    """The rows of a CSV file whose columns are those of a form that is known; ``None``: it is no such file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except (UnicodeDecodeError, csv.Error):
        return None
    reader = reader_of(dict.fromkeys(name.strip() for name in header))
    return _csv_lines(path) if reader is not None and reader.is_csv else None


def _csv_lines(path: Path) -> Iterator[TraceLine]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.DictReader(file, restkey="")
        rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
        for row in rows:
            yield TraceLine(path, rows.line_num, row)


def _items(path: Path, head: bytes) -> list[Any] | None:
    """The items of a file that is one JSON list, or the one object of a file that is one over several lines; ``None``: it is neither."""
    if head[:1] == b"[" or head == b"{":
        try:
            found = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, list) else [found]
    return None


def _json(path: Path, number: int, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"--trace {path}: line {number}: not JSON; a trace has one JSON object a line") from None


def _object(path: Path, number: int, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise UsageError(f"--trace {path}: line {number}: no object but {shown(values)}; a trace has one JSON object a line")
    return values
