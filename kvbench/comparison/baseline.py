"""Runs of one setup reduced to what a comparison needs: per arm and pass each repeat's statistics, and each request's tokens by tier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvbench.analysis.latency import pass_seconds, timed
from kvbench.analysis.request_table import pass_labels, request_frame
from kvbench.analysis.run_view import RunView
from kvbench.analysis.statistics import Statistics, statistics
from kvbench.comparison import identity
from kvbench.errors import UsageError
from kvbench.experiments.readings import ExperimentView
from kvbench.metrics.metric import PassRequests, total
from kvbench.metrics.registry import metrics, of_repeat
from kvbench.metrics.repeat import Repeat
from kvbench.runs.run_folder import Run

TIERS = ("device", "host", "computed")
Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cell:
    """One pass of one arm: the repeats that finished it, run by run in order, and statistics over all of them.

    ``requests`` has a row a request of the pass, its device, host and computed tokens; ``None`` unless they are known and the same in
    all repeats. ``tier``: whether the arm has a tier beside the device pool (:meth:`kvbench.analysis.run_view.RunView.has_tier`).
    """

    arm: str
    pass_label: str
    pass_index: int
    ttft_ms: Statistics
    pass_s: float | None
    repeats: tuple[Repeat, ...]
    requests: Tokens | None
    tier: bool = True


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a comparison knows of one side.

    ``source`` is where it was read from; the rest as :mod:`kvbench.comparison.baseline_file` says.
    """

    source: str
    kvbench: str | None
    created: str | None
    status: str
    reasons: tuple[str, ...]
    exact: bool
    subject: Mapping[str, Any]
    machine: Mapping[str, Any]
    software: Mapping[str, Any]
    cells: tuple[Cell, ...]
    runs: int = 1

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that have a finished pass, the baseline arm first."""
        return tuple(dict.fromkeys(cell.arm for cell in self.cells))


def reduce(run: Run, *more: Run) -> Baseline:
    """The baseline of a run, or of several of one setup. Passes that a repeat did not finish are left out of that repeat.

    Raises:
        UsageError: the runs differ in what they measured, on what or with which versions, or in tokens that must come out the same.
    """
    runs = (run, *more)
    for other in more:
        _refuse_another_setup(run, other)
    manifests, view = [one.manifest for one in runs], ExperimentView(run)
    exact = view.info.concurrency == 1 and view.info.config.get("rate") is None
    return Baseline(
        source=", ".join(str(one.path) for one in runs),
        kvbench=run.manifest.get("kvbench"),
        created=max((str(manifest["created"]) for manifest in manifests if manifest.get("created")), default=None),
        status=min((str(manifest.get("status")) for manifest in manifests), key=_gravity),
        reasons=tuple(dict.fromkeys(reason for manifest in manifests for reason in manifest.get("reasons") or ())),
        exact=exact,
        subject=identity.subject(run.manifest),
        machine=identity.machine(run.manifest),
        software=identity.software(run.manifest),
        cells=tuple(_cells([_Read.of(one) for one in runs], view, exact)),
        runs=len(runs),
    )


def _gravity(status: str) -> int:
    order = ("invalid", "interrupted", "running", "complete")
    return order.index(status) if status in order else len(order)


def _refuse_another_setup(run: Run, other: Run) -> None:
    """Refuse runs that cannot stand for one another. Another commit of kvbench is another run of the same versions."""
    for facts in (identity.subject, identity.machine, identity.software):
        found = [item for item in identity.differences(facts(run.manifest), facts(other.manifest)) if item[0] != "commit"]
        if found:
            what = "; ".join(f"{name}: {identity.shown(one)} and {identity.shown(two)}" for name, one, two in found)
            raise UsageError(f"{run.path} and {other.path} are no runs of one setup ({what}); a base of several is made of equal ones")


@dataclass(frozen=True, slots=True)
class _Read:
    """What cells are made of: the requests of a run by arm and pass index, the lines of its passes by repeat, and their times."""

    path: Path
    requests: Mapping[Any, pd.DataFrame]
    passes: Mapping[tuple[str, int], Mapping[int, Mapping[str, Any]]]
    labels: Mapping[int, str]
    seconds: Mapping[tuple[str, int], float]

    @classmethod
    def of(cls, run: Run) -> _Read:
        passes: dict[tuple[str, int], dict[int, Mapping[str, Any]]] = {}
        for line in run.passes:
            passes.setdefault((line["arm"], line["pass_index"]), {})[line["repeat"]] = line
        requests = dict(iter(request_frame(run).groupby(["arm", "pass_index"])))
        return cls(run.path, requests, passes, pass_labels([*run.passes, *run.requests]), pass_seconds(run))

    def finished(self, key: tuple[str, int]) -> pd.DataFrame:
        """The requests of a pass, of the repeats that finished it."""
        requests = self.requests[key]
        return requests[requests["repeat"].isin(self.passes[key])]


def _cells(runs: Sequence[_Read], view: RunView, exact: bool) -> Iterator[Cell]:
    labels = {index: label for run in reversed(runs) for index, label in run.labels.items()}
    for arm in view.arms:
        for index in sorted(labels):
            key = (arm, index)
            finished = {number: run.finished(key) for number, run in enumerate(runs) if key in run.requests and key in run.passes}
            if not finished:
                continue
            repeats = [
                _repeat(number, repeat, requests[requests["repeat"] == repeat], runs[number].passes[key][repeat])
                for number, requests in finished.items()
                for repeat in sorted(set(requests["repeat"]))
            ]
            ttft = statistics(pd.concat([timed(requests)["ttft_ms"] for requests in finished.values()]))
            seconds = [run.seconds[key] for run in runs if key in run.seconds]
            tokens = {number: _requests(requests) for number, requests in finished.items()}
            if exact:
                _refuse_other_tokens(f"{arm}, {labels[index]}", {runs[number].path: found for number, found in tokens.items()})
            pass_s, same = median(seconds) if seconds else None, _same(list(tokens.values()))
            yield Cell(arm, labels[index], index, ttft, pass_s, tuple(repeats), same, view.has_tier(arm))


def _refuse_other_tokens(place: str, tokens: Mapping[Path, Tokens | None]) -> None:
    """A base that does not agree with itself could not say which hit was lost."""
    known = [(path, found) for path, found in tokens.items() if found is not None]
    for path, found in known[1:]:
        of, first = known[0]
        if len(found) == len(first) and not np.array_equal(found, first):
            request = int(np.flatnonzero((found != first).any(axis=1))[0])
            one, two = (" + ".join(f"{count:,}" for count in rows[request].tolist()) for rows in (first, found))
            raise UsageError(
                f"{of} and {path} differ in {place}, request {request + 1}: device + host + computed tokens {one}, and {two}; a base must "
                f"agree with itself, and requests that run one at a time do (kvbench report tells more of each)"
            )


def _same(tokens: Sequence[Tokens | None]) -> Tokens | None:
    first = tokens[0]
    return first if first is not None and all(other is not None and np.array_equal(first, other) for other in tokens[1:]) else None


def _repeat(run: int, repeat: int, rows: pd.DataFrame, line: Mapping[str, Any]) -> Repeat:
    one = PassRequests(rows, line)
    kept: dict[str, Any] = {metric.repeat: metric.measure(one) for metric in metrics().values() if metric.repeat and metric.measure}
    return Repeat(
        repeat=int(repeat), n=one.ttft.n, min=one.ttft.min, max=one.ttft.max, prompt=total(one.answered["prompt"]), **kept, run=run,
        metrics=of_repeat(one),
    )  # fmt: skip


def _requests(requests: pd.DataFrame) -> Tokens | None:
    """Tokens of each request in the order of the pass, if every repeat has the same."""
    repeats = requests["repeat"].nunique()
    rows = requests.sort_values(["repeat", "position"])
    tokens = rows[list(TIERS)].to_numpy(dtype=np.float64)
    if rows["failed"].any() or np.isnan(tokens).any() or len(tokens) % repeats:
        return None
    by_repeat = tokens.reshape(repeats, -1, len(TIERS)).astype(np.int64)
    return by_repeat[0] if (by_repeat == by_repeat[0]).all() else None
