"""People's own logs as runs: CSV, JSON lines, and what other tools write (``formats/``).

A log says little: what it does not say is unknown, so its tokens by tier, pass times and checks are left out of the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.analysis.logs.columns import TOKENS, table_of
from kvbench.analysis.run_info import LOG
from kvbench.errors import UsageError
from kvbench.runs.records import PassRecord, PassTotals, RequestKey, RequestRecord
from kvbench.runs.run_folder import Run

_PACES = ("max_concurrency", "concurrency", "num_concurrency", "request_rate", "streams", "rate")
"""Fields of a load in which two logs must agree to be compared with each other."""

_TIMES = ("output_tokens", "sent_s", "e2el_s", "itls_s")
_BLANK = RequestRecord(
    RequestKey("", 0, "", 0, 0, "", 0), None, 0, None, None, None, None, None, None, None, 0.0, None, None, None, 0.0, [], None, None
).to_json()


def read_logs(paths: Sequence[Path], names: Mapping[str, str]) -> Run:
    """One run of all the logs. A log without an arm's column is an arm of the file's name, of its path where several have that name; the
    first arm is the baseline.

    Raises:
        UsageError: a file cannot be read, lacks a column, or is named twice.
    """
    stems = [path.stem for path in paths]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise UsageError(f"--csv {twice[0]}: is named twice; each of its requests would count as two")
    tables = [table_of(path, names, stem if stems.count(stem) == 1 else str(path)) for path, stem in zip(paths, stems, strict=True)]
    table = _by_load(tables)
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
    return Run(Path(", ".join(map(str, paths))), manifest, list(_lines(table, passes)), list(_passes(table, passes)), [])


def _by_load(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All logs as one. Requests of another load than others of their log are another pass; so are those of logs at another pace."""
    within = {name for table in tables for name, count in Counter(name for name, _ in _loads_of(table)).items() if count > 1}
    paces = Counter(name for name, _ in {load for table in tables for load in _loads_of(table)} if name in _PACES)
    several = within | {name for name, count in paces.items() if count > 1}
    table = pd.concat(tables, ignore_index=True)
    passes = []
    for name, load in zip(table["pass"], table["load"], strict=True):
        label = ", ".join(f"{field} {load[field]}" for field in load if field in several)
        passes.append(name if not label else label if name == "all" else f"{name}, {label}")
    return table.assign(**{"pass": pd.Series(passes, dtype=object)})


def _loads_of(table: pd.DataFrame) -> set[tuple[str, str]]:
    """Every value of each field of its loads."""
    return {item for load in table["load"] for item in load.items()}


def _times(ttft: float, output: int | None, sent: float | None, e2el: float | None, gaps: list[float] | None) -> dict[str, Any]:
    """When the tokens of a request came, in seconds, as far as the log says; of one that does not say when it was sent, from then on."""
    start = sent or 0.0
    times = list(accumulate(gaps, initial=start + ttft)) if gaps is not None else []
    last = start + e2el if e2el is not None else None
    known = {"output_tokens": output, "sent_s": start, "first_token_s": start + ttft, "last_token_s": last, "scheduled_s": start}
    return {**known, "end_s": start + (e2el or ttft), "token_times_s": times, "chunk_tokens": [1] * len(times) if times else None}


def _passes(table: pd.DataFrame, passes: list[str]) -> Iterator[dict[str, Any]]:
    """A line for each arm, pass and repeat whose log says how long it took."""
    groups: Iterable[tuple[Any, pd.DataFrame]] = table.groupby(["arm", "pass", "repeat"], sort=False)
    for (arm, name, repeat), rows in groups:
        seconds = set(rows["duration_s"])
        if len(seconds) == 1 and None not in seconds:
            failed = int((rows["error"].notna() | ~rows["ttft"].astype(float).gt(0)).sum())
            totals = PassTotals({}, {}, None, None, None, None)
            yield PassRecord(arm, repeat, name, passes.index(name), len(rows), failed, float(seconds.pop()), totals).to_json()


def _lines(table: pd.DataFrame, passes: list[str]) -> Iterator[dict[str, Any]]:
    """The rows as request lines; requests of a pass are numbered in the order of the log."""
    table = table.assign(position=table.groupby(["arm", "pass", "repeat"], sort=False).cumcount())
    index = {name: number for number, name in enumerate(passes)}
    columns = [table[name].tolist() for name in ("arm", "pass", "repeat", "position", "doc", "ttft", "error", *_TIMES, *TOKENS)]
    for arm, name, repeat, position, doc, ttft, error, output, sent, e2el, gaps, *counts in zip(*columns, strict=True):
        failed, missing = error is not None or not ttft, "no time to first token" if ttft is None else "no token"
        yield {
            **_BLANK,
            "arm": arm,
            "repeat": repeat,
            "pass": name,
            "pass_index": index[name],
            "position": position,
            "request_id": f"{arm}-r{repeat}-{name}-{position}",
            "doc_id": doc if isinstance(doc, int) else position,
            **dict(zip(TOKENS.values(), counts, strict=True)),
            "prompt_tokens_sent": counts[0],
            **({} if failed else _times(ttft / 1e3, output, sent, e2el, gaps)),
            "ttft_ms": None if failed else ttft,
            "error": {"kind": "log", "message": error or missing, "status": None} if failed else None,
        }
