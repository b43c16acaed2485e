"""Runs of one setup reduced to what a comparison needs: per arm and pass each repeat's statistics, and each request's tokens by tier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ConfigDict, Field, GetPydanticSchema
from pydantic_core.core_schema import no_info_after_validator_function

from kvbench.analysis.latency import timed
from kvbench.analysis.statistics import Statistics
from kvbench.comparison import identity
from kvbench.errors import UsageError
from kvbench.experiments.readings import ExperimentView
from kvbench.experiments.verdict import unsteady
from kvbench.metrics.metric import PassRequests, total
from kvbench.metrics.registry import metrics, of_repeat
from kvbench.metrics.repeat import Repeat
from kvbench.runs.run_folder import Run

TIERS = ("device", "host", "computed")
QUANTILES = (5, 25, 50, 75, 95)
"""Per cent of the requests of a pass that have at most the TTFT that is kept: how the pass is distributed."""

_NONE = Statistics(n=0)
_GRAVEST_FIRST = ("invalid", "interrupted", "running", "complete")

_Count = Annotated[int, Field(ge=0, le=2**53)]
_Groups = list[tuple[Annotated[int, Field(ge=1, le=10**7)], _Count, _Count, _Count]]
"""How a file has the tokens of a pass's requests: how many equal ones follow each other, and the tokens of each by tier."""


def _expanded(groups: _Groups) -> npt.NDArray[np.int64]:
    rows = np.asarray(groups, dtype=np.int64).reshape(-1, 1 + len(TIERS))
    return np.repeat(rows[:, 1:], rows[:, 0], axis=0)


Tokens = Annotated[
    npt.NDArray[np.int64],
    GetPydanticSchema(lambda _, handler: no_info_after_validator_function(_expanded, handler.generate_schema(_Groups))),
]
"""A row a request of a pass, its tokens by tier."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One pass of one arm: the repeats that finished it, run by run in order, and statistics over all of them.

    ``requests``: ``None`` unless they are known and the same in all repeats. ``tier``: whether the arm has a tier beside the device pool
    (:meth:`kvbench.analysis.run_view.RunView.has_tier`).
    ``quantiles``: TTFT in ms at :data:`QUANTILES`; ``None``: nothing was timed, or the file is older.
    """

    arm: str
    pass_label: Annotated[str, Field(alias="pass")]
    pass_index: int
    ttft_ms: Statistics
    pass_s: float | None
    repeats: tuple[Repeat, ...]
    requests: Tokens | None
    tier: bool = True
    quantiles: tuple[float, float, float, float, float] | None = None
    tpot_ms: Statistics = _NONE
    itl_ms: Statistics = _NONE
    e2el_ms: Statistics = _NONE


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a comparison knows of one side, each field of the type that it must have in a file, which people edit and merge.

    ``source`` is where it was read from; ``unsteady``: that a run's times are, and where; the rest as
    :mod:`kvbench.comparison.baseline_file` says.
    """

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    source: str
    kvbench: str | None
    created: str | None
    status: str
    reasons: tuple[str, ...]
    exact: bool
    subject: dict[str, Any]
    machine: dict[str, Any]
    software: dict[str, Any]
    cells: tuple[Cell, ...]
    runs: Annotated[int, Field(ge=1)] = 1
    unsteady: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that have a finished pass, the baseline arm first."""
        return tuple(dict.fromkeys(cell.arm for cell in self.cells))


def reduce(run: Run, *more: Run) -> Baseline:
    """The baseline of a run, or of several of one setup. Passes that a repeat did not finish are left out of that repeat.

    Raises:
        UsageError: the runs differ in what they measured, on what or with which versions, or in tokens that must come out the same.
    """
    for other in more:
        _refuse_another_setup(run, other)
    views = [ExperimentView(one) for one in (run, *more)]
    manifests, info = [view.run.manifest for view in views], views[0].info
    statuses = [view.info.status for view in views]
    exact = info.concurrency == 1 and info.config.get("rate") is None
    return Baseline(
        source=", ".join(str(view.path) for view in views),
        kvbench=run.manifest.get("kvbench"),
        created=max((str(manifest["created"]) for manifest in manifests if manifest.get("created")), default=None),
        status=next((status for status in _GRAVEST_FIRST if status in statuses), statuses[0]),
        reasons=tuple(dict.fromkeys(reason for view in views for reason in view.info.reasons)),
        exact=exact,
        subject=identity.subject(run.manifest),
        machine=identity.machine(run.manifest),
        software=identity.software(run.manifest),
        cells=tuple(_cells(views, exact)),
        runs=len(views),
        unsteady=tuple(words for view in views if (words := unsteady(view.noise)) is not None),
    )


def _refuse_another_setup(run: Run, other: Run) -> None:
    """Refuse runs that cannot stand for one another. Another commit of kvbench is another run of the same versions."""
    for facts in (identity.subject, identity.machine, identity.software):
        found = [item for item in identity.differences(facts(run.manifest), facts(other.manifest)) if item[0] != "commit"]
        if found:
            what = "; ".join(f"{name}: {identity.shown(one)} and {identity.shown(two)}" for name, one, two in found)
            raise UsageError(f"{run.path} and {other.path} are no runs of one setup ({what}); a base of several is made of equal ones")


def _cells(views: Sequence[ExperimentView], exact: bool) -> Iterator[Cell]:
    labels = {index: label for view in reversed(views) for index, label in view.labels.items()}
    tables = [dict[Any, pd.DataFrame](iter(view.frame.groupby(["arm", "pass_index"]))) for view in views]
    for arm in views[0].arms:
        for index in sorted(labels):
            finished: dict[int, pd.DataFrame] = {}  # by run, of the repeats that finished the pass
            repeats: list[Repeat] = []
            for number, (view, table) in enumerate(zip(views, tables, strict=True)):
                lines = {line["repeat"]: line for line in view.finished(arm, index)}
                if lines and (arm, index) in table:
                    rows = table[arm, index]
                    finished[number] = rows[rows["repeat"].isin(lines)]
                    by_repeat = finished[number].groupby("repeat")
                    repeats += [_repeat(number, repeat, PassRequests(own, lines[repeat], view.slo)) for repeat, own in by_repeat]
            if not finished:
                continue
            tokens = {number: _requests(requests) for number, requests in finished.items()}
            if exact:
                _refuse_other_tokens(f"{arm}, {labels[index]}", {views[number].path: found for number, found in tokens.items()})
            seconds = [wall for view in views if (wall := view.pass_seconds(arm, index)) is not None]
            every = PassRequests(pd.concat(list(finished.values())), {})
            yield Cell(
                arm=arm,
                pass_label=labels[index],
                pass_index=index,
                ttft_ms=every.ttft,
                tpot_ms=every.tpot,
                itl_ms=every.itl,
                e2el_ms=every.e2el,
                pass_s=median(seconds) if seconds else None,
                repeats=tuple(repeats),
                requests=_same(list(tokens.values())),
                tier=views[0].has_tier(arm),
                quantiles=None if not every.ttft.n else tuple(np.percentile(timed(every.rows)["ttft_ms"], QUANTILES).tolist()),
            )


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


def _repeat(run: int, repeat: Any, one: PassRequests) -> Repeat:
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
