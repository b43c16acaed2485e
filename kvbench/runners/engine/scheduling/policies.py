"""Allocation policies: for how many tokens a sequence must have room (after the article on paging). Victim policies: which of the running
sequences is preempted when blocks run out.

An allocation policy may ask for more room than a step needs, never for less, and for no more than ``check_request`` allows. The candidates
of a victim policy are all that run, whoever asks for room included, but for the oldest (unless it is alone). That the oldest always gets
on, and that the queue is in order of arrival, is what lets every request end, whatever a policy says.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several

from kvbench.runners.engine.scheduling.sequence import Sequence

Allocation = Callable[[Sequence, int], int]
"""Tokens of room for a sequence that is about to have ``tokens`` tokens computed."""


def on_demand(sequence: Sequence, tokens: int) -> int:
    """Room as it is needed: less than a block is wasted, and generation can run out."""
    return tokens


def reserve(sequence: Sequence, tokens: int) -> int:
    """Room for the longest output, kept from the start: nothing runs out later, and fewer run at once."""
    return sequence.longest


def reserve_each(room: int) -> Allocation:
    """The same room for every sequence, kept from the start: what a server does that does not know how long an output will be.

    No sequence may need more (``check_request``).
    """
    return lambda sequence, tokens: room


ALLOCATIONS: dict[str, Allocation] = {"on-demand": on_demand, "reserve": reserve}

VictimPolicy = Callable[[Several[Sequence]], Sequence]
"""Picks one of the candidates, which are in order of arrival and at least one."""


def newest(candidates: Several[Sequence]) -> Sequence:
    """The one that arrived last: first come, first served, down to who may stay."""
    return candidates[-1]


def least_computed(candidates: Several[Sequence]) -> Sequence:
    """The one with the least KV, so the least is lost or moved; the newest among equals."""
    return min(reversed(candidates), key=lambda sequence: sequence.computed)


VICTIMS: dict[str, VictimPolicy] = {"newest": newest, "least-computed": least_computed}
