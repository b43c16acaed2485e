"""Which column of a log is what, and its values: numbers and words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.analysis.logs.reader import LOAD, TTFT_UNITS
from kvbench.analysis.logs.text import read_log
from kvbench.errors import UsageError

_TIMES = {f"ttft_{unit}": factor for unit, factor in TTFT_UNITS.items()}

TOKENS = {"prompt": "prompt_tokens", "device": "cached_tokens_device", "host": "cached_tokens_host", "computed": "computed_tokens"}
COLUMNS = ("ttft", *_TIMES, "arm", "pass", "repeat", "doc", "error", "success", *TOKENS)
"""What ``--map NAME=COLUMN`` can name: TTFT and its unit; where a request belongs; whether it failed; tokens by tier."""

_GUESSED = {"doc": ("doc_id", "doc"), **{name: (field, name) for name, field in TOKENS.items()}}
"""Columns that are taken without ``--map`` where they exist; the others by their own names."""

_WORDS_OF_ERRORS = ("error", "error_msg", "error_message")
_FAILURES = {"error": (*_WORDS_OF_ERRORS, "error_code"), "success": ("success", "is_success")}
"""Columns that say that a request failed, and those that say that it did not."""

_LOADS = ("model", "model_id", "max_concurrency", "concurrency", "num_concurrency", "request_rate")
"""Columns of a log of no known tool that say under which load a request was sent."""

_CONTROLS = dict.fromkeys((*range(32), *range(127, 160), 0x2028, 0x2029), " ")
"""Control characters and ends of lines, which are no part of a name in a table."""

_NUMBERS = ("repeat", *TOKENS)
LOAD_NUMBERS = ("output_tokens", "sent_s", "e2el_s", "duration_s")
"""What a reader may tell of the load; a log of no known tool may have columns of these names."""

_MOST = 2.0**53
"""Above it sums of whole numbers are no longer exact; no time in milliseconds and no count of tokens comes near."""

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""What stands for no number; an arm, a pass or a document may well be called so."""

_FALSE, _TRUE = {"false", "0", "0.0", "no"}, {"true", "1", "1.0", "yes"}
_NO_ERROR = _MISSING | _FALSE | {"{}", "[]"}
"""What stands for no error, flags and counts of errors too."""


def parse_map(items: Iterable[str]) -> dict[str, str]:
    """``["ttft=latency:s,arm=config", "pass=round"]`` as names and columns; a time's name has its unit (``ttft_s``).

    Raises:
        UsageError: no such name, no column, or a time without a unit.
    """
    found: dict[str, str] = {}
    for item in (part for text in items for part in text.split(",")):
        name, equals, column = item.partition("=")
        if name not in COLUMNS or not equals or not column:
            raise UsageError(f"--map {item!r}: NAME=COLUMN is expected; names are {', '.join(COLUMNS)}")
        if name == "ttft":
            name, column = _with_unit(column)
        if name in _TIMES and (other := found.keys() & _TIMES):
            raise UsageError(f"--map names both {other.pop()} and {name}; which one is meant cannot be told")
        found[name] = column
    return found


def _with_unit(column: str) -> tuple[str, str]:
    """``latency:s`` and ``latency_s`` as ``ttft_s`` and the column."""
    bare, colon, unit = column.rpartition(":")
    if colon and unit in TTFT_UNITS:
        return f"ttft_{unit}", bare
    if (unit := re.split(r"[_.]", column)[-1]) in TTFT_UNITS and unit != column:
        return f"ttft_{unit}", column
    raise UsageError(f"--map ttft={column}: its unit is not said; ttft={column}:s is seconds, ttft={column}:ms milliseconds")


def table_of(path: Path, names: Mapping[str, str], arm: str) -> pd.DataFrame:
    """The log as requests, a row each: ``arm, pass, repeat, doc, ttft`` (ms), ``error``, tokens, times, and ``load``, a dictionary.

    What the log does not say is ``None``, and ``arm`` for its arm.

    Raises:
        UsageError: it cannot be read, or does not say a time and its unit.
    """
    raw = read_log(path, as_table=bool(names.keys() & _TIMES))
    time, factor = _time(path, raw, names)
    found: dict[str, list[Any]] = {"ttft": [None if value is None else value * factor for value in _numbers(path, raw[time], time)]}
    defaults = {"arm": arm, "pass": "all", "repeat": 0}
    for name in ("arm", "pass", "repeat", "doc", *TOKENS):
        column, default = _column(path, raw, name, names), defaults.get(name)
        read = [] if column is None else _numbers(path, raw[column], column) if name in _NUMBERS else _words(raw[column], {""})
        found[name] = [default if value is None else value for value in read or [None] * len(raw)]
    for name in LOAD_NUMBERS:
        found[name] = _numbers(path, raw[name], name) if name in raw and name not in names.values() else [None] * len(raw)
    found["itls_s"] = [_gaps(path, gaps) for gaps in raw["itls_s"]] if "itls_s" in raw else [None] * len(raw)
    found["error"] = _failures(path, raw, names)
    found["load"] = _loads(raw, names)
    if len(raw) and not any(found["ttft"]) and not any(found["error"]):
        raise UsageError(f"{path}: no request has a time to first token (column {time}); answers must be streamed to have one")
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in found.items()})


def _time(path: Path, raw: pd.DataFrame, names: Mapping[str, str]) -> tuple[str, float]:
    """The column of the time to first token, and its unit in milliseconds."""
    for name, factor in _TIMES.items():
        if (name in names or (name in raw and not names.keys() & _TIMES)) and (column := _column(path, raw, name, names)):
            return column, factor
    if "ttft" in raw:
        raise UsageError(f"{path}: column ttft does not say its unit; --map ttft=ttft:s is seconds, --map ttft=ttft:ms milliseconds")
    have = ", ".join(map(str, raw.columns[:40]))
    raise UsageError(f"{path}: has no column ttft_ms or ttft_s; name it with its unit, as --map ttft=COLUMN:ms (its columns: {have})")


def _column(path: Path, raw: pd.DataFrame, name: str, names: Mapping[str, str]) -> str | None:
    """The log's column for ``name``, ``None`` if it has none."""
    column = names.get(name)
    if column is None:
        column = next((guess for guess in _GUESSED.get(name, (name,)) if guess in raw and not _other_meaning(name, guess, raw)), None)
    elif column not in raw and f"{LOAD}{column}" in raw:
        column = f"{LOAD}{column}"
    if column is None:
        return None
    if column not in raw:
        raise UsageError(f"--map {name}={column}: {path} has no such column; it has {', '.join(map(str, raw.columns[:40]))}")
    if list(raw.columns).count(column) > 1:
        raise UsageError(f"{path}: has several columns {column}; which one is meant cannot be told")
    return column


def _failures(path: Path, raw: pd.DataFrame, names: Mapping[str, str]) -> list[str | None]:
    """Why each request failed, by every column that says so; ``None``: it did not."""
    found: list[list[str]] = [[] for _ in range(len(raw))]
    for name, known in _FAILURES.items():
        for column in [names[name]] if name in names else [column for column in known if column in raw]:
            words = _words(raw[_column(path, raw, name, {name: column})], _MISSING)
            for row, word in enumerate(words, start=1):
                if name == "error" and word is not None and word.lower() not in _NO_ERROR:
                    found[row - 1].append(word if name in names or column in _WORDS_OF_ERRORS else f"{column} {word}")
                elif name == "success" and word is not None and word.lower() not in _TRUE:
                    if word.lower() not in _FALSE:
                        raise UsageError(f"{path}: column {column}, row {row}: {word!r} is neither true nor false")
                    found[row - 1].append(f"{column} {word}")
    return ["; ".join(dict.fromkeys(said)) or None for said in found]


def _loads(raw: pd.DataFrame, names: Mapping[str, str]) -> list[dict[str, str]]:
    """Under which load each request was sent, by field; a column that ``--map`` names has another meaning."""
    given = {str(name) for name in raw.columns if str(name).startswith(LOAD)} or {name for name in _LOADS if name in raw}
    columns = {name.removeprefix(LOAD): raw[name].tolist() for name in raw.columns if name in given}
    fields = [name for name in columns if name not in names.values() and list(raw.columns).count(name) <= 1]
    return [{name: str(columns[name][row]) for name in fields} for row in range(len(raw))]


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


def _gaps(path: Path, gaps: Any) -> list[float] | None:
    """The gaps between the tokens of a request, in seconds."""
    if gaps is None or gaps != gaps:
        return None
    if not isinstance(gaps, list) or not all(isinstance(gap, (int, float)) and 0 <= gap <= _MOST for gap in gaps):
        raise UsageError(f"{path}: the gaps between the tokens of a request are a list of seconds, and here {str(gaps)[:40]!r} is none")
    return gaps


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
