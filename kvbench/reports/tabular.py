"""The summary for programs: csv and json, at full precision; unknown is empty or null."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

import pandas as pd

from kvbench.analysis.prediction import Foreseen
from kvbench.analysis.summary import Summary


def csv(summary: Summary) -> str:
    """A line for each arm and pass; with the rows by document or by repeat, a line for each of those instead."""
    if summary.repeats is not None:
        lines = [_levelled(asdict(row)) for row in summary.repeats]
    elif summary.documents is not None:
        lines = [_with_prediction(asdict(row)) for row in summary.documents]
    else:
        lines = [_levelled(_with_prediction(asdict(row))) for row in summary.passes]
    return str(pd.DataFrame(lines, dtype=object).to_csv(index=False, lineterminator="\n"))


def to_json(summary: Summary) -> str:
    """The summary as one JSON document."""
    return _json(summary.to_json())


def to_json_list(summaries: Iterable[Summary]) -> str:
    """Several summaries as one JSON document, a list."""
    return _json([summary.to_json() for summary in summaries])


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _levelled(line: dict[str, Any]) -> dict[str, Any]:
    """One level of columns: ``ttft_ms_p50``, ``speedup_p50_low``."""
    columns: dict[str, Any] = {}
    for name, value in line.items():
        if name == "ttft_ms":
            columns |= {"n" if part == "n" else f"ttft_ms_{part}": number for part, number in value.items()}
        elif name == "speedup":
            for statistic in ("p50", "mean"):
                low, high = value[f"{statistic}_interval"] or (None, None)
                columns |= {
                    f"speedup_{statistic}": value[statistic],
                    f"speedup_{statistic}_low": low,
                    f"speedup_{statistic}_high": high,
                }
        else:
            columns[name] = value
    return columns


def _with_prediction(line: dict[str, Any]) -> dict[str, Any]:
    """The same line with its prediction in columns; ``prediction`` is exact, estimate, or empty where nothing was predicted."""
    foreseen = line.pop("foreseen") or dict.fromkeys(field.name for field in fields(Foreseen))
    difference = foreseen["difference"] or (None, None, None)
    return {
        **line,
        "prediction": {None: None, True: "exact", False: "estimate"}[foreseen["exact"]],
        **{f"predicted_{name}": foreseen[name] for name in ("device", "host", "computed", "ttft_ms")},
        **{f"difference_{name}": tokens for name, tokens in zip(("device", "host", "computed"), difference, strict=True)},
        "differing_requests": foreseen["differing"],
    }
