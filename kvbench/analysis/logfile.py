"""People's own logs as runs: CSV, JSON lines, and what ``vllm bench serve --save-detailed`` writes.

A log says little: what it does not say is unknown, so its tokens by tier, pass times and checks are left out of the report.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.analysis.run_info import LOG
from kvbench.errors import UsageError
from kvbench.runs.records import RequestKey, RequestRecord
from kvbench.runs.run_folder import Run

COLUMNS = ("ttft", "ttft_s", "arm", "pass", "repeat", "doc", "error", "prompt", "device", "host", "computed")
"""What ``--map NAME=COLUMN`` can name: TTFT in milliseconds or in seconds; where a request belongs; why it failed; tokens by tier."""

_TOKENS = {"prompt": "prompt_tokens", "device": "cached_tokens_device", "host": "cached_tokens_host", "computed": "computed_tokens"}
_GUESSED = {"ttft": ("ttft_ms", "ttft"), "doc": ("doc_id", "doc"), **{name: (field, name) for name, field in _TOKENS.items()}}
"""Columns that are taken without ``--map`` where they exist; the others by their own names."""

_CONTROLS = dict.fromkeys((*range(32), *range(127, 160), 0x2028, 0x2029), " ")
"""Control characters and ends of lines, which are no part of a name in a table."""

_NUMBERS = ("ttft", "ttft_s", "repeat", *_TOKENS)
_MOST = 2.0**53
"""Above it sums of whole numbers are no longer exact; no time in milliseconds and no count of tokens comes near."""

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""What stands for no number; an arm, a pass or a document may well be called so."""

_NO_ERROR = _MISSING | {"false", "0", "0.0"}
"""What stands for no error, flags and counts of errors too."""

_BLANK = RequestRecord(
    RequestKey("", 0, "", 0, 0, "", 0), None, 0, None, None, None, None, None, None, None, 0.0, None, None, None, 0.0, [], None, None
).to_json()


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


def read_logs(paths: Sequence[Path], names: Mapping[str, str]) -> Run:
    """One run of all the logs. A log without an arm's column is an arm of the file's name, of its path where several have that name; the
    first arm is the baseline.

    Raises:
        UsageError: a file cannot be read, lacks a column, or is named twice.
    """
    stems = [path.stem for path in paths]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise UsageError(f"--csv {twice[0]}: is named twice; each of its requests would count as two")
    tables = [_table(path, names, stem if stems.count(stem) == 1 else str(path)) for path, stem in zip(paths, stems, strict=True)]
    table = pd.concat(tables, ignore_index=True)
    if table.empty:
        raise UsageError(f"{', '.join(map(str, paths))}: holds no request")
    arms, passes = list(dict.fromkeys(table["arm"])), list(dict.fromkeys(table["pass"]))
    documents: list[str] | None = None
    if table["doc"].notna().all():
        numbers, known = pd.factorize(table["doc"])
        table, documents = table.assign(doc=numbers.tolist()), [str(name) for name in known]
    manifest = {
        "status": "complete",
        "config": {"experiment": LOG, "runner": ", ".join(path.name for path in paths), "repeats": int(table["repeat"].nunique())},
        "arms": [{"name": name, "command": None} for name in arms],
        "workload": {"document_names": documents},
    }
    return Run(Path(", ".join(map(str, paths))), manifest, list(_lines(table, passes)), [], [])


def _lines(table: pd.DataFrame, passes: list[str]) -> Iterator[dict[str, Any]]:
    """The rows as request lines; requests of a pass are numbered in the order of the log."""
    table = table.assign(position=table.groupby(["arm", "pass", "repeat"], sort=False).cumcount())
    index = {name: number for number, name in enumerate(passes)}
    columns = [table[name].tolist() for name in ("arm", "pass", "repeat", "position", "doc", "ttft", "error", *_TOKENS)]
    for arm, name, repeat, position, doc, ttft, error, *counts in zip(*columns, strict=True):
        failed = error is not None or ttft is None
        yield {
            **_BLANK,
            "arm": arm,
            "repeat": repeat,
            "pass": name,
            "pass_index": index[name],
            "position": position,
            "request_id": f"{arm}-r{repeat}-{name}-{position}",
            "doc_id": doc if isinstance(doc, int) else position,
            **dict(zip(_TOKENS.values(), counts, strict=True)),
            "prompt_tokens_sent": counts[0],
            "ttft_ms": None if failed else ttft,
            "error": {"kind": "log", "message": error or "no time to first token", "status": None} if failed else None,
        }


def _table(path: Path, names: Mapping[str, str], arm: str) -> pd.DataFrame:
    """The log with the columns ``arm, pass, repeat, doc, ttft, error`` and tokens; ``None`` where it does not say, ``arm`` for its arm."""
    raw = _read(path)
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
    for name in ("arm", "pass", "repeat", "doc", "error", *_TOKENS):
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
    if name != column or name not in _TOKENS or list(raw.columns).count(column) > 1:
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


def _read(path: Path) -> pd.DataFrame:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from None
    try:
        if text.lstrip()[:1] not in ("{", "["):
            return _of_csv(path, text)
        objects = list(_json_lines(text)) if text.lstrip()[0] == "{" else json.loads(text)
    except (ValueError, csv.Error) as error:
        whole = _one_object(text)
        if whole is None:
            raise UsageError(f"{path}: is neither CSV nor JSON lines ({error})") from None
        objects = [whole]
    if not all(isinstance(item, dict) for item in objects):
        raise UsageError(f"{path}: a JSON object a line is expected")
    return _of_vllm(path, objects) if any("ttfts" in item or "median_ttft_ms" in item for item in objects) else pd.DataFrame(objects)


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


def _one_object(text: str) -> Any:
    """A file that is one JSON object over several lines."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _of_vllm(path: Path, results: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The requests of ``vllm bench serve --save-detailed`` (vLLM 0.32): ``ttfts`` in seconds, 0.0 where no token came, ``errors`` in words.

    With ``--append-result`` a file holds several results, one a line: each is a repeat.
    """
    tables = []
    for repeat, result in enumerate(results):
        if "ttfts" not in result:
            raise UsageError(f"{path}: a result of vllm bench without its requests; run it with --save-result --save-detailed")
        ttfts = _list_of_vllm(path, result, "ttfts", len(result["ttfts"]) if isinstance(result["ttfts"], list) else 0)
        if any(isinstance(ttft, bool) or not isinstance(ttft, int | float) or not math.isfinite(ttft) for ttft in ttfts):
            raise UsageError(f"{path}: ttfts of vllm bench are numbers of seconds, and here one is none")
        errors = _list_of_vllm(path, result, "errors", len(ttfts)) or [None] * len(ttfts)
        failures = [error or (None if ttft != 0 else "no token") for ttft, error in zip(ttfts, errors, strict=True)]
        lengths = _list_of_vllm(path, result, "input_lens", len(ttfts)) or None
        tables.append(pd.DataFrame({"ttft_s": ttfts, "error": failures, "repeat": repeat, "prompt_tokens": lengths}))
    return pd.concat(tables, ignore_index=True)


def _list_of_vllm(path: Path, result: Mapping[str, Any], name: str, count: int) -> list[Any]:
    """A list of a result, one item a request; empty where it is not there.

    Raises:
        UsageError: no list, or of another length.
    """
    found = result.get(name) or []
    if not isinstance(found, list) or (found and len(found) != count):
        raise UsageError(f"{path}: {name} of vllm bench is a list with an item for each of ttfts, and here it is not")
    return found
