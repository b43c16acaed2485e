"""Stalls: gaps in a stream during which a request was preempted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from kvbench.runfolder import Run

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


def stalls_of(run: Run, arm: str) -> Stalls | None:
    """The stalls of an arm; ``None`` where nothing was preempted, or, where nobody counts that, no stream stood still."""
    lines = [line for line in run.requests if line["arm"] == arm]
    exact = all(line["preemptions"] is not None for line in lines)
    found = [(ms, str(line["request_id"]), token) for line in lines for token, ms in (_told(line) if exact else long_gaps(line))]
    preemptions = sum(line["preemptions"] for line in lines) if exact else _counted(run, arm)
    if preemptions == 0 or (preemptions is None and not found):
        return None
    return Stalls(arm, preemptions, len(found), exact, *(max(found) if found else ()))


def _told(line: dict[str, Any]) -> Iterator[tuple[int, float]]:
    """Token before the stall, and its length in ms, as the runner recorded them."""
    for stall in line["stalls"]:
        yield stall["after_token"], stall["total_ms"]


def long_gaps(line: dict[str, Any]) -> Iterator[tuple[int, float]]:
    """The same of any request, from its arrivals alone: gaps above :data:`MULTIPLE` medians."""
    times, counts = line["token_times_s"], line["chunk_tokens"]
    gaps = [after - before for before, after in pairwise(times)]
    if len(gaps) < 2 or counts is None:
        return
    usual, tokens = median(gaps), 0
    for gap, count in zip(gaps, counts, strict=False):
        tokens += count
        if gap > MULTIPLE * usual:
            yield tokens, gap * 1e3


def _counted(run: Run, arm: str) -> int | None:
    """Preemptions by the server's own counter."""
    passes = [line for line in run.passes if line["arm"] == arm]
    if not passes or any("preemptions" not in line["counters_after"] for line in passes):
        return None
    return sum(int(line["counters_after"]["preemptions"]) - int(line["counters_before"].get("preemptions", 0)) for line in passes)
