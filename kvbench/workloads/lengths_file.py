"""``--lengths FILE``: the prompt and output of each request, in tokens, as the user's own log has them.

A line a request: CSV whose head names ``prompt_tokens`` and ``output_tokens`` among its columns, or them as a trace does (``FORMS``); these
two numbers without a head, a comma or space between them; or JSON lines with two such keys. Blank lines are left out.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from kvbench.errors import UsageError

NAMES = ("prompt_tokens", "output_tokens")
FORMS = (NAMES, ("ContextTokens", "GeneratedTokens"), ("Request tokens", "Response tokens"), ("input_length", "output_length"))
"""How prompt and output are called: by kvbench; by Azure's traces (2023, 2024), BurstGPT, and Mooncake's and Bailian's."""

MOST = 100_000
"""Requests of a run."""


def read_lengths_file(path: Path, longest: int) -> list[tuple[int, int]]:
    """Prompt and output tokens of each request; ``longest``: the most that both may come to together.

    Raises ``UsageError``: the file cannot be read, or a line is no request, with its number.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"--lengths {path}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise UsageError(f"--lengths {path}: cannot be read ({error.strerror})") from None
    lines = text.splitlines()
    rows = _json_rows(path, lines) if text.lstrip().startswith("{") else _csv_rows(path, lines)
    lengths = [_lengths(path, number, values, longest) for number, values in rows]
    if not lengths:
        raise UsageError(f"--lengths {path}: holds no request; a line a request is expected, as in 161,338")
    if len(lengths) > MOST:
        raise UsageError(f"--lengths {path}: holds {len(lengths):,} requests, and a run has at most {MOST:,}; shorten it")
    return lengths


def _csv_rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Line number and the two cells of each request."""
    reader = csv.reader(lines, skipinitialspace=True)
    columns: list[int] | None = None
    for row in reader:
        cells = [cell.strip() for cell in row] if len(row) > 1 else "".join(row).split()
        if not any(cells):
            continue
        if columns is None:
            columns = [0, 1]
            if (names := _form(cells)) is not None:
                columns = [cells.index(name) for name in names]
                continue
            if len(cells) != 2:
                raise UsageError(
                    f"--lengths {path}: line {reader.line_num} has {len(cells)} columns; a head that names {' and '.join(NAMES)}, or two "
                    "numbers a line are expected"
                )
        if len(cells) <= max(columns):
            raise UsageError(f"--lengths {path}: line {reader.line_num} has {len(cells)} of {max(columns) + 1} columns")
        yield reader.line_num, tuple(cells[column] for column in columns)


def _json_rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Line number and the two values of each request."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        names = _form(found) if isinstance(found, dict) else None
        if names is None:
            raise UsageError(f"--lengths {path}: line {number} is no JSON object with {' and '.join(NAMES)}")
        yield number, tuple(found[name] for name in names)


def _form(found: Collection[str]) -> tuple[str, str] | None:
    """The names of prompt and output that are among these."""
    return next((names for names in FORMS if set(names) <= set(found)), None)


def _lengths(path: Path, number: int, values: tuple[Any, ...], longest: int) -> tuple[int, int]:
    prompt, output = (_tokens(value) for value in values)
    if prompt is None or output is None:
        raise UsageError(f"--lengths {path}: line {number}: {values[0]!r} and {values[1]!r} are not two whole numbers of tokens above 0")
    if prompt + output > longest:
        raise UsageError(
            f"--lengths {path}: line {number}: {prompt:,} + {output:,} tokens are more than --max-length {longest}; raise it, or leave the "
            "line out"
        )
    return prompt, output


def _tokens(value: Any) -> int | None:
    """A whole number above 0; ``None`` if it is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:20])
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
