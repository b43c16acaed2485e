"""What a metric is: one entry, from which tables, csv, json, comparisons, thresholds and docs/metrics.md are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import pandas as pd

from kvbench.analysis.goodput import share_in_slo
from kvbench.analysis.latency import timed
from kvbench.analysis.load import Throughput, itl_ms, throughput
from kvbench.analysis.statistics import Statistics, statistics
from kvbench.config.slo import Slo
from kvbench.drawing.numbers import grouped_decimal
from kvbench.drawing.numbers import per_cent as per_cent  # what shows a share
from kvbench.metrics.repeat import Repeat

SHARE = "share"
"""The unit of metrics from 0 to 1, which are shown in per cent."""

LAST = 100
"""The place of metrics that name none: after those of this package, in the order in which they were added."""


class ComparedBy(Enum):
    """How a metric is compared with that of another run; the members are described where they are."""

    RATIO = "ratio"
    """Its change is a share of the base, in the interval that the repeats' logarithms give. Values must be above 0."""

    TOKENS = "tokens"
    """Prompt tokens by tier: request by request where requests run one at a time, else the share of the prompt, over repeats."""

    COUNT = "count"
    """Exactly where requests run one at a time; else as a difference, in the interval that the repeats give."""

    EXACT = "exact"
    """Exactly, however requests run."""

    LIMIT = "limit"
    """Not by itself: only where ``--fail-on`` names it."""


@dataclass(frozen=True)
class PassRequests:
    """One repeat of one pass of one arm, as a metric is measured from it.

    ``rows``: its requests (:func:`kvbench.analysis.request_table.request_frame`), failed ones too. ``line``: its line of ``passes.jsonl``;
    empty if the repeat did not finish the pass. ``slo``: the run's objective, ``None`` without one.
    """

    rows: pd.DataFrame
    line: Mapping[str, Any]
    slo: Slo | None = None

    @cached_property
    def answered(self) -> pd.DataFrame:
        """The requests that did not fail."""
        return self.rows[~self.rows["failed"]]

    @cached_property
    def ttft(self) -> Statistics:
        """TTFT in ms."""
        return statistics(timed(self.rows)["ttft_ms"])

    @cached_property
    def tpot(self) -> Statistics:
        """TPOT in ms."""
        return statistics(self.answered["tpot_ms"].dropna())

    @cached_property
    def itl(self) -> Statistics:
        """ITL in ms, over all gaps."""
        return statistics(itl_ms(self.answered))

    @cached_property
    def e2el(self) -> Statistics:
        """E2EL in ms."""
        return statistics(self.answered["e2el_ms"].dropna())

    @cached_property
    def in_slo(self) -> float | None:
        """The share of its requests that met the objective; ``None``: there is none, or a time is unknown."""
        return share_in_slo(self.rows, self.slo)

    @cached_property
    def throughput(self) -> Throughput:
        """What the pass delivered a second."""
        return throughput(self.rows, self.line.get("wall_s"), self.in_slo)


def arithmetic_mean(values: Sequence[float]) -> float:
    """The mean."""
    return float(np.mean(values))


def total(values: pd.Series[float]) -> int | None:
    """The sum of whole numbers; ``None``: there are none, or one is unknown."""
    return None if values.empty or values.isna().any() else int(values.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of a pass of an arm. A metric is added with the first six fields; the others have defaults.

    Attributes:
        name: lower case, digits and ``_``: in ``--fail-on``, json, csv and comparisons.
        unit: of its values; empty for a count, :data:`SHARE` for 0 to 1.
        formula: as docs/metrics.md says it.
        header: of its column in the table of passes.
        worse: the direction that is worse: ``None``, a change is neither worse nor better.
        measure: its value in one repeat of a pass; ``None``, the value is unknown, which is never 0. Not given by metrics that are a ratio
            of what a baseline keeps (``derive``).
        over_repeats: the value of a pass from those of its repeats, of which there is at least one.
        withheld: when it is unknown, in words.
        needs: samples below which it is unknown; 0: any number will do.
        compared: how it is compared with another run's.
        words: what worse and better are called.
        moved: what a change that is neither is called.
        show: a value as text.
        cell: the same in the table of passes where that is narrower.
        table: which table has its column: that of passes, of load, or of tail percentiles.
        column: its place in that table, from the left; ``None``: it has no column.
        order: its place in every other list.
        heading: of its table in a comparison, if it is compared by ratio (``{baseline}``: the first arm).
        label: what it is called in that table; ``None``: by its header and unit.
        of_machine: whether a change says nothing between two machines.
        over_baseline: whether it is a ratio to the first arm, which then has none.
        needs_tier: whether only arms with a host tier have it.
        hidden_at_0: whether it is not shown where it is 0 everywhere.
        hidden_unknown: whether it has no column where it is unknown everywhere.
        row: where a pass of the summary has it (``ttft_ms.p50``), as its JSON and, with ``_`` for the dot, its CSV.
        repeat: the field of a baseline's repeat that keeps it.
        by_repeat: whether a baseline's repeat keeps it by its name, although a pass has a field for it.
        derive: its value in a repeat from what a baseline keeps of that, and of the same repeat of the first arm.

    A metric with neither ``row``, ``repeat`` nor ``derive`` is kept by its name, beside the fields that these name: ``metrics`` of a pass
    in JSON, of a repeat in a baseline; a column of its own in CSV.
    """

    name: str
    unit: str
    formula: str
    header: str
    worse: Literal["higher", "lower"] | None
    measure: Callable[[PassRequests], float | None] | None = None
    over_repeats: Callable[[Sequence[float]], float] = arithmetic_mean
    withheld: str = ""
    needs: int = 0
    compared: ComparedBy = ComparedBy.LIMIT
    words: tuple[str, str] = ("worse", "better")
    moved: str = "changed"
    show: Callable[[float], str] = grouped_decimal
    cell: Callable[[float], str] | None = None
    table: Literal["pass", "load", "tail"] = "pass"
    column: float | None = LAST
    order: int = LAST
    heading: str = "Other metrics"
    label: str | None = None
    of_machine: bool = False
    over_baseline: bool = False
    needs_tier: bool = False
    hidden_at_0: bool = False
    hidden_unknown: bool = False
    row: str | None = None
    repeat: str | None = None
    by_repeat: bool = False
    derive: Callable[[Repeat, Repeat | None], float | None] | None = None

    @property
    def by_name(self) -> bool:
        """Whether it is kept by its name: a pass has no field of its own for it."""
        return self.row is None and self.repeat is None and self.derive is None

    @property
    def of_whole_pass(self) -> bool:
        """Whether only its value over all repeats is kept."""
        return self.row is not None and self.repeat is None and self.derive is None and not self.by_repeat

    @property
    def more_is_worse(self) -> bool | None:
        """``worse`` as an answer."""
        return None if self.worse is None else self.worse == "higher"

    def of(self, one: PassRequests) -> float | None:
        """Its value in a repeat as it is kept by name: a finite number, or unknown."""
        value = None if self.measure is None else self.measure(one)
        return float(value) if value is not None and math.isfinite(value) else None

    def of_row(self, row: Any) -> float | None:
        """Its value in a pass of the summary; where only ``row`` keeps it, in one of a baseline too."""
        value: float | None = attrgetter(self.row)(row) if self.row is not None else (row.metrics or {}).get(self.name)
        return value

    def of_repeat(self, repeat: Repeat, over: Repeat | None) -> float | None:
        """Its value in a repeat of a baseline; ``over``: the same repeat of the first arm."""
        if self.derive is not None:
            return self.derive(repeat, over)
        value: float | None = getattr(repeat, self.repeat) if self.repeat is not None else (repeat.metrics or {}).get(self.name)
        return value
