"""People's own logs as runs: CSV, JSON lines, and what ``vllm bench serve --save-detailed`` writes.

A log says little: what it does not say is unknown, so its tokens by tier, pass times and checks are left out of the report.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.errors import UsageError
from kvbench.records import Place, RequestRecord
from kvbench.runfolder import Run

COLUMNS = ("ttft", "ttft_s", "arm", "pass", "repeat", "doc", "error", "prompt", "device", "host", "computed")
"""What ``--map NAME=COLUMN`` can name: TTFT in milliseconds or in seconds; where a request belongs; why it failed; tokens by tier."""

_GUESSED = {"ttft": ("ttft_ms", "ttft"), "ttft_s": ("ttft_s",), "doc": ("doc_id", "doc"), "prompt": ("prompt_tokens",),
            "device": ("cached_tokens_device",), "host": ("cached_tokens_host",), "computed": ("computed_tokens",)}  # fmt: skip
"""Columns that are taken without ``--map`` where they exist; the others by their own names."""

_NUMBERS = ("ttft", "ttft_s", "repeat", "prompt", "device", "host", "computed")
_BLANK = RequestRecord(
    Place("", 0, "", 0, 0, "", 0), None, 0, None, None, None, None, None, None, None, 0.0, None, None, None, 0.0, [], None, None
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
    return found


def read_logs(paths: Sequence[Path], names: Mapping[str, str]) -> Run:
    """One run of all the logs. A log without an arm's column is an arm of the file's name; the first arm is the baseline.

    Raises:
        UsageError: a file cannot be read, or lacks a column.
    """
    tables = [_table(path, names) for path in paths]
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
        "config": {"experiment": "log", "runner": ", ".join(path.name for path in paths), "repeats": int(table["repeat"].nunique())},
        "arms": [{"name": name, "command": None} for name in arms],
        "workload": {"document_names": documents},
    }
    return Run(Path(", ".join(map(str, paths))), manifest, list(_lines(table, passes)), [], [])


def _lines(table: pd.DataFrame, passes: list[str]) -> Iterator[dict[str, Any]]:
    """The rows as request lines; requests of a pass are numbered in the order of the log."""
    table = table.assign(position=table.groupby(["arm", "pass", "repeat"], sort=False).cumcount())
    index = {name: number for number, name in enumerate(passes)}
    tokens = {"prompt": "prompt_tokens", "device": "cached_tokens_device", "host": "cached_tokens_host", "computed": "computed_tokens"}
    columns = [table[name].tolist() for name in ("arm", "pass", "repeat", "position", "doc", "ttft", "error", *tokens)]
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
            **dict(zip(tokens.values(), counts, strict=True)),
            "prompt_tokens_sent": counts[0],
            "ttft_ms": None if failed else ttft,
            "error": {"kind": "log", "message": error or "no time to first token", "status": None} if failed else None,
        }


def _table(path: Path, names: Mapping[str, str]) -> pd.DataFrame:
    """The log with the columns ``arm, pass, repeat, doc, ttft, error`` and tokens; ``None`` where it does not say."""
    raw = _read(path)
    columns = {name: _column(path, raw, name, names) for name in COLUMNS}
    if columns["ttft"] is None and columns["ttft_s"] is None:
        have = ", ".join(map(str, raw.columns))
        raise UsageError(f"{path}: has no column ttft_ms or ttft; name it, as --map ttft=COLUMN (its columns: {have})")
    found: dict[str, Any] = {
        name: _numbers(path, raw[column], column) if name in _NUMBERS else _words(raw[column])
        for name, column in columns.items()
        if column is not None
    }
    seconds = found.pop("ttft_s", None)
    if "ttft" not in found:
        found["ttft"] = [None if value is None else value * 1e3 for value in seconds or ()]
    defaults = {"arm": path.stem, "pass": "all", "repeat": 0}
    for name in ("arm", "pass", "repeat", "doc", "error", "prompt", "device", "host", "computed"):
        default = defaults.get(name)
        found[name] = [default if value is None else value for value in found.get(name) or [None] * len(raw)]
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in found.items()})


def _column(path: Path, raw: pd.DataFrame, name: str, names: Mapping[str, str]) -> str | None:
    if name in names:
        if names[name] not in raw:
            raise UsageError(f"--map {name}={names[name]}: {path} has no such column; it has {', '.join(map(str, raw.columns))}")
        return names[name]
    if name in ("ttft", "ttft_s") and ("ttft" in names or "ttft_s" in names):
        return None
    return next((column for column in _GUESSED.get(name, (name,)) if column in raw), None)


def _numbers(path: Path, values: pd.Series[Any], column: str) -> list[float | int | None]:
    """Numbers, whole ones as such; ``None`` where the log is empty."""
    found: list[float | None] = []
    for row, word in enumerate(_words(values), start=1):
        try:
            found.append(None if word is None else float(word))  # Python's own: pandas may be off by the last digit
        except ValueError:
            raise UsageError(f"{path}: column {column}, row {row}: {word!r} is no number") from None
    if all(value is None or value.is_integer() for value in found):
        return [None if value is None else int(value) for value in found]
    return list(found)


def _words(values: pd.Series[Any]) -> list[str | None]:
    """Words; ``None`` where the log is empty."""
    return [None if value is None or value != value or str(value).strip() == "" else str(value) for value in values.tolist()]


def _read(path: Path) -> pd.DataFrame:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from None
    try:
        if text.lstrip()[:1] not in ("{", "["):
            return pd.read_csv(path, encoding="utf-8-sig", skipinitialspace=True, dtype=str)
        objects = [json.loads(line) for line in text.splitlines() if line.strip()] if text.lstrip()[0] == "{" else json.loads(text)
    except ValueError as error:
        whole = _one_object(text)
        if whole is None:
            raise UsageError(f"{path}: is neither CSV nor JSON lines ({error})") from None
        objects = [whole]
    if not all(isinstance(item, dict) for item in objects):
        raise UsageError(f"{path}: a JSON object a line is expected")
    return _of_vllm(path, objects) if any("ttfts" in item or "median_ttft_ms" in item for item in objects) else pd.DataFrame(objects)


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
        ttfts = result["ttfts"]
        errors = result.get("errors") or [""] * len(ttfts)
        table = pd.DataFrame({"ttft_s": ttfts, "error": errors, "repeat": repeat, "prompt_tokens": result.get("input_lens") or None})
        table["error"] = [error or (None if ttft > 0 else "no token") for ttft, error in zip(ttfts, errors, strict=True)]
        tables.append(table)
    return pd.concat(tables, ignore_index=True)
