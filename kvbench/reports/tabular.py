"""The summary for programs: csv and json, at full precision; unknown is empty or null."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pandas as pd

from kvbench.analysis.summary import PassRow, Summary


def csv(summary: Summary) -> str:
    """A line for each arm and pass; with the rows by document, a line for each of those instead."""
    lines = [_flat(row) for row in summary.passes] if summary.documents is None else [asdict(row) for row in summary.documents]
    return str(pd.DataFrame(lines, dtype=object).to_csv(index=False, lineterminator="\n"))


def to_json(summary: Summary) -> str:
    """The summary as one JSON document."""
    return json.dumps(summary.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _flat(row: PassRow) -> dict[str, Any]:
    """One level of columns: ``ttft_ms_p50``, ``speedup_p50_low``."""
    line = asdict(row)
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
