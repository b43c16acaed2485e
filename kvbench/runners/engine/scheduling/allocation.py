"""Allocation policies: for how many tokens a sequence must have room (after the article on paging).

A policy may ask for more room than a step needs, never for less, and for no more than ``check_request`` allows.
"""

from __future__ import annotations

from collections.abc import Callable

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
