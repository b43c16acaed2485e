"""A run as analysis knows it: its manifest and its lines, and what is computed of them, each part once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Any

import pandas as pd

from kvbench.analysis.prediction import Agreement, compare, with_prediction
from kvbench.analysis.request_table import pass_labels, request_frame
from kvbench.analysis.run_info import RunInfo
from kvbench.config.slo import Slo, parse_slo
from kvbench.errors import UsageError
from kvbench.runs.calibration import calibrate, describe_fit
from kvbench.runs.rates import Rates
from kvbench.runs.run_folder import Run, read_events, read_usage

Line = dict[str, Any]
Rows = Mapping[str, tuple[Any, ...]]
"""Rows that only an experiment's runs have, by their key in a summary's JSON."""

PassKey = tuple[str, int, int]
"""Arm, repeat and pass index."""


class RunView(ABC):
    """What is known of one run. Parts are computed when they are first asked for, and shared by all who ask.

    ``requests``: a line for each request that ended; ``passes``: for each arm, repeat and pass that was finished; ``arms``: their names,
    the baseline first.
    """

    def __init__(self, run: Run, slo: Slo | None = None) -> None:
        """A view of ``run``; ``slo``: the objective that its requests are compared with, where it is not the run's own."""
        self.run, self.path, self.info = run, run.path, RunInfo(run.manifest)
        self.requests: Sequence[Line] = run.requests
        self.passes: Sequence[Line] = run.passes
        self.arms = self.info.arms
        own = self.info.config.get("slo")
        self.slo = slo or (None if own is None else parse_slo(str(own)))

    @property
    @abstractmethod
    def judges_tiers(self) -> bool:
        """Whether the arms are tiers, so that hits, first reads and speedups speak of them."""

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """The rows of the run's experiment."""

    def has_tier(self, arm: str) -> bool:
        """Whether the arm has a tier beside the device pool, be it one of size zero or of unknown size."""
        return self.judges_tiers and arm != "none"

    @cached_property
    def labels(self) -> dict[int, str]:
        """A label for each pass index, in order."""
        return pass_labels([*self.passes, *self.requests])

    @cached_property
    def by_arm(self) -> dict[str, list[Line]]:
        """The request lines of each arm."""
        return {arm: [line for line in self.requests if line["arm"] == arm] for arm in self.arms}

    def pass_seconds(self, arm: str, pass_index: int) -> float | None:
        """Pass time: first send to last token, in seconds; the median over repeats. ``None``: no repeat has one."""
        walls = [line["wall_s"] for line in self.finished(arm, pass_index) if line["wall_s"] is not None]
        return median(walls) if walls else None

    def finished(self, arm: str, pass_index: int | None = None) -> list[Line]:
        """The lines of an arm's finished passes, or of one of them, a line a repeat."""
        return [line for line in self.passes if line["arm"] == arm and pass_index in (None, line["pass_index"])]

    @cached_property
    def rates(self) -> Mapping[str, Any] | None:
        """The rates of predicted times: a simulated run's own; of a measured one, what its requests tell. ``None``: there are none."""
        if not self.judges_tiers:
            return None
        if self.info.simulated:
            return self.info.rates
        try:
            return describe_fit(self.run, calibrate(self.run))
        except UsageError:  # it tells none
            return None

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The requests, a row each (:func:`kvbench.analysis.request_table.request_frame`)."""
        return request_frame(self.run)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The same with what was predicted of each request (:func:`kvbench.analysis.prediction.with_prediction`)."""
        rates = None if self.rates is None else Rates(*(self.rates[name] for name in ("prefill", "restore", "overhead_ms")))
        return with_prediction(self.frame, self.run, rates)

    @cached_property
    def by_pass(self) -> dict[tuple[str, int], pd.DataFrame]:
        """The rows of the table by arm and pass index."""
        groups: dict[Any, pd.DataFrame] = dict(iter(self.table.groupby(["arm", "pass_index"])))
        return groups

    @cached_property
    def agreement(self) -> Agreement | None:
        """Prediction against measurement; ``None`` if nothing was predicted."""
        return compare(self.run)

    @cached_property
    def usage(self) -> dict[PassKey, list[Line]]:
        """The pool's use after each step; the steps of a pass lie between its first send and its last end."""
        spans: dict[PassKey, tuple[float, float]] = {}
        for line in self.requests:
            key = (line["arm"], line["repeat"], line["pass_index"])
            begin, end = spans.get(key, (line["scheduled_s"], line["end_s"]))
            spans[key] = min(begin, line["scheduled_s"]), max(end, line["end_s"])
        found: dict[PassKey, list[Line]] = {key: [] for key in spans}
        for step in read_usage(self.path):
            within = next((key for key, (begin, end) in spans.items() if begin <= step["time_s"] <= end), None)
            if within is not None:
                found[within].append(step)
        return found

    def events(self, requests: Container[str]) -> dict[str, list[Line]]:
        """What the engine did for these requests, by their ids, oldest first."""
        return read_events(self.path, requests)
