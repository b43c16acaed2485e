"""The summary as csv, for programs: at full precision; unknown is empty. The lines of an invalid measurement say so.

Text that a spreadsheet would compute begins with '.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from kvbench.drawing.clean import clean_cell
from kvbench.reports.formats.format import ReportFormat, RunsReport
from kvbench.runs.sweep_folder import shown

if TYPE_CHECKING:
    from kvbench.summary.summary import Summary


def to_csv(summary: Summary) -> str:
    """A line for each arm and pass; with the rows by document or by repeat, a line for each of those instead."""
    return _csv([{**line, **_status(summary, bool(summary.reasons))} for line in _lines(summary)])


def render_several(runs: RunsReport) -> str:
    """The lines of all runs that were measured, each behind the name of its run and the options in which the runs differ.

    ``notes``: those of the run. Where one is an invalid measurement, the lines of all have a status.
    """
    lines: list[dict[str, Any]] = []
    any_invalid = bool(runs.side.reasons)
    for run, summary in runs.side.measured:
        for line in _lines(summary):
            named = {f"option_{name}" if name in line else name: _cell(value) for name, value in run.options.items()}
            told = {**_status(summary, any_invalid), "notes": "; ".join(summary.notes)}
            lines.append({"run": run.name, **named, **line, **told})
    return _csv(lines)


def _status(summary: Summary, wanted: bool) -> dict[str, str]:
    """How the run ended, and why it is invalid."""
    return {"status": "invalid" if summary.reasons else summary.status, "reasons": "; ".join(summary.reasons)} if wanted else {}


def _lines(summary: Summary) -> list[dict[str, Any]]:
    """The rows of a summary; a link that was simulated is named in each."""
    link = {} if summary.link is None else {"link": summary.link}
    return [{**line, **link} for line in _rows(summary)]


def _rows(summary: Summary) -> list[dict[str, Any]]:
    if summary.repeats is not None:
        return [_levelled(asdict(row)) for row in summary.repeats]
    if summary.documents is not None:
        return [_with_prediction(asdict(row)) for row in summary.documents]
    if lines := summary.reading.csv_lines(summary.rows):
        added: dict[Any, Any] = {(row.arm, row.pass_index): row.metrics for row in summary.passes}
        return [_with_metrics(_levelled(line) | {"metrics": added.get((line.get("arm"), line.get("pass_index")))}) for line in lines]
    return [_with_metrics(_levelled(_with_prediction(asdict(row)))) for row in summary.passes]


def _csv(lines: list[dict[str, Any]]) -> str:
    import pandas as pd  # late, as help reads this module

    cells = [{name: clean_cell(value) if isinstance(value, str) else value for name, value in line.items()} for line in lines]
    return str(pd.DataFrame(cells, dtype=object).to_csv(index=False, lineterminator="\n"))


def _cell(value: Any) -> Any:
    """An option in a cell: numbers as they are; empty where it does not apply."""
    return value if value is None or isinstance(value, (int, float, str)) else shown(value)


def _levelled(line: dict[str, Any]) -> dict[str, Any]:
    """One level of columns: ``ttft_ms_p50``, ``speedup_p50_low``."""
    columns: dict[str, Any] = {}
    for name, value in line.items():
        if name == "ttft_ms":
            columns |= {"n" if part == "n" else f"ttft_ms_{part}": number for part, number in value.items()}
        elif name in ("tpot_ms", "itl_ms", "e2el_ms"):
            columns |= {f"{name}_{part}": number for part, number in value.items()}
        elif name.endswith("_interval"):
            stem = name.removesuffix("_interval")
            columns[f"{stem}_low"], columns[f"{stem}_high"] = value or (None, None)
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


def _with_metrics(line: dict[str, Any]) -> dict[str, Any]:
    """The same line with the metrics that were added last, each by its name, or as ``metric_NAME`` where a column is called that."""
    added = line.pop("metrics") or {}
    return line | {f"metric_{name}" if name in line else name: value for name, value in added.items()}


def _with_prediction(line: dict[str, Any]) -> dict[str, Any]:
    """The same line with its prediction in columns; ``prediction`` is exact, estimate, or empty where nothing was predicted."""
    from kvbench.analysis.prediction import Foreseen  # late: pandas

    foreseen = line.pop("foreseen") or dict.fromkeys(field.name for field in fields(Foreseen))
    difference = foreseen["difference"] or (None, None, None)
    return {
        **line,
        "prediction": {None: None, True: "exact", False: "estimate"}[foreseen["exact"]],
        **{f"predicted_{name}": foreseen[name] for name in ("device", "host", "computed", "ttft_ms")},
        **{f"difference_{name}": tokens for name, tokens in zip(("device", "host", "computed"), difference, strict=True)},
        "differing_requests": foreseen["differing"],
    }


FORMAT = ReportFormat("csv", "a line a pass", 4, lambda run: to_csv(run.summary), render_several, has_one_kind_of_line=True, warns=True)
