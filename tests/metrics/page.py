"""The table of metrics in docs/metrics.md, as the registry has them.

python -m tests.metrics.page        write it into the page
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvbench.metrics.metric import Metric
from kvbench.metrics.registry import metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
BEGIN, END = "<!-- metrics: written by python -m tests.metrics.page -->\n", "<!-- end of metrics -->\n"
HOW = {"ratio": "ratio", "tokens": "exactly, or share", "count": "exactly, or mean", "exact": "exactly", "limit": "`--fail-on` only"}


def table() -> str:
    """The table, a line a metric."""
    head = ["name", "unit", "formula", "worse", "compared by", "JSON (CSV)", "unknown"]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *map(list, map(_cells, metrics().values())))) + "\n"


def _cells(metric: Metric) -> Iterator[str]:
    yield f"`{metric.name}`"
    yield metric.unit or "count"
    yield metric.formula
    yield metric.worse or "–"
    yield HOW[metric.compared.value]
    row = metric.row or ("" if not metric.by_name else f"metrics.{metric.name}")
    yield f"`{row}`" + (f" (`{row.replace('.', '_')}`)" if "." in row else "") if row else "–"
    yield metric.withheld or "never"


def written() -> str:
    """What the page has between its marks."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")
