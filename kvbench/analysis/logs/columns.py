"""Which column of a log is what, and its values: numbers and words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.analysis.logs.text import read_log
from kvbench.errors import UsageError

COLUMNS = ("ttft", "ttft_s", "arm", "pass", "repeat", "doc", "error", "prompt", "device", "host", "computed")
"""What ``--map NAME=COLUMN`` can name: TTFT in milliseconds or in seconds; where a request belongs; why it failed; tokens by tier."""

TOKENS = {"prompt": "prompt_tokens", "device": "cached_tokens_device", "host": "cached_tokens_host", "computed": "computed_tokens"}
_GUESSED = {"ttft": ("ttft_ms", "ttft"), "doc": ("doc_id", "doc"), **{name: (field, name) for name, field in TOKENS.items()}}
"""Columns that are taken without ``--map`` where they exist; the others by their own names."""

_CONTROLS = dict.fromkeys((*range(32), *range(127, 160), 0x2028, 0x2029), " ")
"""Control characters and ends of lines, which are no part of a name in a table."""

_NUMBERS = ("ttft", "ttft_s", "repeat", *TOKENS)
_MOST = 2.0**53
"""Above it sums of whole numbers are no longer exact; no time in milliseconds and no count of tokens comes near."""

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""What stands for no number; an arm, a pass or a document may well be called so."""

_NO_ERROR = _MISSING | {"false", "0", "0.0"}
"""What stands for no error, flags and counts of errors too."""


def parse_map(items: Iterable[str]) -> dict[str, str]:
    """``["ttft=latency,arm=config", "pass=round"]`` as names and columns.

    Raises:
        UsageError: no such name, or no column.
    """
    found: dict[str, str] = {}
    for item in (part for text in items for part in text.split(",")):
        name, equals, column = item.partition("=")
        if name not in COLUMNS or not equals or not column:
            raise UsageError(f"--map {item!r}: NAME=COLUMN is expected; names are {', '.join(COLUMNS)}")
        found[name] = column
    if {"ttft", "ttft_s"} <= found.keys():
        raise UsageError("--map names both ttft (ms) and ttft_s (seconds); which one is meant cannot be told")
    return found


def table_of(path: Path, names: Mapping[str, str], arm: str) -> pd.DataFrame:
    """The log with the columns ``arm, pass, repeat, doc, ttft, error`` and tokens; ``None`` where it does not say, ``arm`` for its arm."""
    raw = read_log(path)
    columns = {name: _column(path, raw, name, names) for name in COLUMNS}
    if columns["ttft"] is None and columns["ttft_s"] is None:
        have = ", ".join(map(str, raw.columns))
        raise UsageError(f"{path}: has no column ttft_ms or ttft; name it, as --map ttft=COLUMN (its columns: {have})")
    found: dict[str, Any] = {
        name: _numbers(path, raw[column], column) if name in _NUMBERS else _words(raw[column], _NO_ERROR if name == "error" else {""})
        for name, column in columns.items()
        if column is not None
    }
    seconds = found.pop("ttft_s", None)
    if "ttft" not in found:
        found["ttft"] = [None if value is None else value * 1e3 for value in seconds or ()]
    defaults = {"arm": arm, "pass": "all", "repeat": 0}
    for name in ("arm", "pass", "repeat", "doc", "error", *TOKENS):
        default = defaults.get(name)
        found[name] = [default if value is None else value for value in found.get(name) or [None] * len(raw)]
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in found.items()})


def _column(path: Path, raw: pd.DataFrame, name: str, names: Mapping[str, str]) -> str | None:
    """The log's column for ``name``, ``None`` if it has none."""
    column = names.get(name)
    if column is None and not (name in ("ttft", "ttft_s") and ("ttft" in names or "ttft_s" in names)):
        column = next((guess for guess in _GUESSED.get(name, (name,)) if guess in raw and not _other_meaning(name, guess, raw)), None)
    if column is None:
        return None
    if column not in raw:
        raise UsageError(f"--map {name}={column}: {path} has no such column; it has {', '.join(map(str, raw.columns))}")
    if list(raw.columns).count(column) > 1:
        raise UsageError(f"{path}: has several columns {column}; which one is meant cannot be told")
    return column


def _other_meaning(name: str, column: str, raw: pd.DataFrame) -> bool:
    """Whether a column that is called as tokens are holds no number at all: prompts in words, names of hosts or devices."""
    if name != column or name not in TOKENS or list(raw.columns).count(column) > 1:
        return False
    words = [word for word in _words(raw[column], _MISSING) if word is not None]
    return bool(words) and all(_number(word) is None for word in words)


def _numbers(path: Path, values: pd.Series[Any], column: str) -> list[float | int | None]:
    """Numbers from 0 on, whole ones as such; ``None`` where the log is empty."""
    found: list[float | None] = []
    for row, word in enumerate(_words(values, _MISSING), start=1):
        number = None if word is None else _number(word)
        if word is not None and number is None:
            raise UsageError(f"{path}: column {column}, row {row}: {word!r} is no number")
        if number is not None and not 0 <= number <= _MOST:
            raise UsageError(f"{path}: column {column}, row {row}: {word} is neither 0 nor a finite number above it")
        found.append(number)
    if all(value is None or value.is_integer() for value in found):
        return [None if value is None else int(value) for value in found]
    return list(found)


def _number(word: str) -> float | None:
    """The number that the word is; Python's own reading: pandas may be off by the last digit."""
    try:
        return float(word)
    except ValueError:
        return None


def _words(values: pd.Series[Any], missing: Collection[str]) -> list[str | None]:
    """Words, without what moves a terminal's cursor; ``None`` where the log is empty or says a word for ``missing``, in small letters."""
    words = ["" if value is None or value != value else str(value).translate(_CONTROLS).strip() for value in values.tolist()]
    return [None if word.lower() in missing else word for word in words]
