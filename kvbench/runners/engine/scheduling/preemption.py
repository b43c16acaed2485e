"""Victim policies: which of the running sequences is preempted when blocks run out.

The candidates are all that run, whoever asks for room included, but for the oldest (unless it is alone). That the oldest always gets
on, and that the queue is in order of arrival, is what lets every request end, whatever a policy says.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Candidates

from kvbench.runners.engine.scheduling.sequence import Sequence

VictimPolicy = Callable[[Candidates[Sequence]], Sequence]
"""Picks one of the candidates, which are in order of arrival and at least one."""


def newest(candidates: Candidates[Sequence]) -> Sequence:
    """The one that arrived last: first come, first served, down to who may stay."""
    return candidates[-1]


def least_computed(candidates: Candidates[Sequence]) -> Sequence:
    """The one with the least KV, so the least is lost or moved; the newest among equals."""
    return min(reversed(candidates), key=lambda sequence: sequence.computed)


VICTIMS: dict[str, VictimPolicy] = {"newest": newest, "least-computed": least_computed}
