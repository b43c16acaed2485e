"""Stalls: gaps in a stream during which a request was preempted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from kvbench.runs.run_folder import Run

MULTIPLE = 50.0
"""Over HTTP nobody says which gap is a preemption: a gap above so many of the request's own median gaps counts as one. Chunks of others'
prompts make gaps of up to some twenty medians."""


@dataclass(frozen=True, slots=True)
class Stalls:
    """The stalls of one arm. ``exact``: the runner told them; else they are gaps above :data:`MULTIPLE` medians.

    ``preemptions`` is ``None`` where the runner does not count them. The last three are of the longest stall.
    """

    arm: str
    preemptions: int | None
    stalls: int
    exact: bool
    longest_ms: float | None = None
    request_id: str | None = None
    after_token: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A stall, or several, in ms by what the time was spent on; only ``total_ms`` is known of a gap that nobody explains."""

    total_ms: float
    waiting_ms: float | None = None
    restoring_ms: float | None = None
    recomputing_ms: float | None = None
    first_step_ms: float | None = None


PARTS = ("waiting_ms", "restoring_ms", "recomputing_ms", "first_step_ms")


@dataclass(frozen=True, slots=True)
class StallTimes:
    """The stalls of an arm: how many, their sum, their medians part by part, and the longest. ``None`` where there is none."""

    count: int
    sum: Split | None = None
    median: Split | None = None
    longest: Split | None = None


def splits(line: dict[str, Any]) -> Iterator[tuple[int, Split]]:
    """The stalls of a request, each with the token before it: as the runner told them, else its long gaps."""
    if line["preemptions"] is None:
        yield from ((token, Split(ms)) for token, ms in long_gaps(line))
    for stall in line["stalls"]:
        yield stall["after_token"], Split(stall["total_ms"], *(stall.get(name) for name in PARTS))


def stall_times(run: Run, arm: str) -> StallTimes:
    """Where the time of an arm's stalls went, over all repeats."""
    found = [split for line in run.requests if line["arm"] == arm for _, split in splits(line)]
    if not found or _counted(run, arm) == 0:  # a long gap where nothing was preempted has another reason
        return StallTimes(0)
    return StallTimes(len(found), _each_part(found, math.fsum), _each_part(found, median), max(found, key=lambda split: split.total_ms))


def wrong_stalls(run: Run) -> Iterator[str]:
    """Requests that have a stall whose parts do not sum to it, or that is not the gap between the two tokens around it."""
    for line in run.requests:
        times = line["token_times_s"]
        for stall in line["stalls"]:
            gap_ms = (times[stall["after_token"]] - times[stall["after_token"] - 1]) * 1e3 if stall["after_token"] < len(times) else None
            parts_ms = math.fsum(stall[name] for name in PARTS)
            if gap_ms is None or not all(math.isclose(stall["total_ms"], ms, rel_tol=1e-6, abs_tol=1e-6) for ms in (gap_ms, parts_ms)):
                yield str(line["request_id"])
                break


def stalls_of(run: Run, arm: str) -> Stalls | None:
    """The stalls of an arm; ``None`` where nothing was preempted, or, where nobody counts that, no stream stood still."""
    lines = [line for line in run.requests if line["arm"] == arm]
    exact = all(line["preemptions"] is not None for line in lines)
    found = [(split.total_ms, str(line["request_id"]), token) for line in lines for token, split in splits(line)]
    preemptions = sum(line["preemptions"] for line in lines) if exact else _counted(run, arm)
    if preemptions == 0 or (preemptions is None and not found):
        return None
    return Stalls(arm, preemptions, len(found), exact, *(max(found) if found else ()))


def long_gaps(line: dict[str, Any]) -> Iterator[tuple[int, float]]:
    """Token before each long gap of a request, and its length in ms, from its arrivals alone: gaps above :data:`MULTIPLE` medians."""
    times, counts = line["token_times_s"], line["chunk_tokens"]
    gaps = [after - before for before, after in pairwise(times)]
    if len(gaps) < 2 or counts is None:
        return
    usual, tokens = median(gaps), 0
    for gap, count in zip(gaps, counts, strict=False):
        tokens += count
        if gap > MULTIPLE * usual:
            yield tokens, gap * 1e3


def _each_part(splits: Sequence[Split], statistic: Callable[[list[float]], float]) -> Split:
    """A statistic of the totals, and of each part that all of them have."""
    columns = ([getattr(split, name) for split in splits] for name in PARTS)
    return Split(statistic([split.total_ms for split in splits]), *(None if None in column else statistic(column) for column in columns))


def _counted(run: Run, arm: str) -> int | None:
    """Preemptions by the server's own counter."""
    passes = [line for line in run.passes if line["arm"] == arm]
    if not passes or any("preemptions" not in line["counters_after"] for line in passes):
        return None
    return sum(int(line["counters_after"]["preemptions"]) - int(line["counters_before"].get("preemptions", 0)) for line in passes)
