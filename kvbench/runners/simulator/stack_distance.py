"""Hits at all capacities at once: LRU keeps a stack, so an access hits at capacity C exactly if its depth in the stack is at most C.

By the leading-run rule, all blocks of a request are looked up before any of it is touched, and those after the first miss do not count.
So an access's depth is that of its block at the start of its request, and what counts is the running maximum along the request: exact,
at every capacity. Blocks are then touched head first or, as vLLM and the engine free them, tail first.

Depth = distinct blocks touched between the block's last touch, at place p, and the start s of the request, and itself. Call (i, j) an arc
if j is the next touch of the block touched at i. Of the s − p − 1 touches between, every one that is touched again before s is counted
once too often; those are the arcs (i, j) with p < i and j < s. With the arcs in order of j this is a count of greater elements among the
first ones, which a wavelet tree answers level by level, for all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvbench.runners.simulator.block_trace import BlockTrace, Integers

Small = npt.NDArray[np.int32]

NEVER = 2**62
"""The smallest capacity of an access that hits at none."""


@dataclass(frozen=True, slots=True, eq=False)
class HitCurve:
    """Hits by capacity: ``hits[c]`` of ``accesses`` hit in a pool of ``c`` blocks; from ``len(hits) − 1`` on nothing changes."""

    hits: Integers
    accesses: int

    def hits_at(self, capacity: int | None) -> int:
        """Hits at a capacity in blocks; ``None``: without a limit."""
        last = len(self.hits) - 1
        return int(self.hits[last if capacity is None else min(capacity, last)])

    def rate_at(self, capacity: int | None) -> float | None:
        """Share of block accesses that hit, 0 to 1; ``None`` for a trace without any."""
        return self.hits_at(capacity) / self.accesses if self.accesses else None

    def smallest(self, share: float) -> int:
        """The smallest capacity in blocks that hits this share of what a pool without a limit hits; 0 to 1."""
        return int(np.searchsorted(self.hits, np.ceil(share * self.hits_at(None)), side="left"))


def hit_curve(trace: BlockTrace, tail_first: bool) -> HitCurve:
    """Hits at every capacity; arguments and errors as :func:`smallest_capacities`."""
    return curve_of(smallest_capacities(trace, tail_first))


def curve_of(needed: Integers) -> HitCurve:
    """Hits at every capacity, from the smallest capacity of each access."""
    by_capacity = np.bincount(needed[needed != NEVER], minlength=1)
    return HitCurve(np.cumsum(by_capacity), len(needed))


def smallest_capacities(trace: BlockTrace, tail_first: bool) -> Integers:
    """For each access, in the trace's order, the smallest pool in blocks that it hits in, or ``NEVER``.

    Time and memory: N log N for N accesses, about 100 bytes an access. ``tail_first``: in which order a request's blocks are touched at its
    end. Raises ``UsageError``: a request has an id twice.
    """
    mirror = _mirror(trace) if tail_first else None
    depths = _depths(trace, trace.ids if mirror is None else trace.ids[mirror])
    if mirror is not None:
        depths = depths[mirror]
    step = trace.accesses + 2  # above every depth, so that a running maximum of all starts anew with each request
    offset = np.repeat(np.arange(len(trace)) * step, np.diff(trace.starts))
    depths += offset
    np.maximum.accumulate(depths, out=depths)
    depths -= offset
    depths[depths > trace.accesses] = NEVER
    return depths


def _mirror(trace: BlockTrace) -> Integers:
    """For each place, the place of the same request as far from its end as this one from its start."""
    ends = np.repeat(trace.starts[:-1] + trace.starts[1:] - 1, np.diff(trace.starts))
    return np.asarray(ends - np.arange(trace.accesses), dtype=np.int64)


def _depths(trace: BlockTrace, touched: Integers) -> Integers:
    """Of each touch, the depth of its block at the start of the request; ``accesses + 1`` if it was never touched before."""
    before = trace.previous(touched)
    depths = np.full(len(touched), len(touched) + 1, dtype=np.int64)
    ends = np.flatnonzero(before >= 0)
    if not len(ends):
        return depths
    begins = before[ends]
    starts = np.repeat(trace.starts[:-1], np.diff(trace.starts))[ends]
    arcs_before = np.concatenate(([0], np.cumsum(before >= 0, dtype=np.int32)))
    is_begin = np.zeros(len(touched), dtype=np.int32)
    is_begin[begins] = 1
    ranks = (np.cumsum(is_begin, dtype=np.int32) - 1)[begins]
    depths[ends] = starts - begins - _greater_among_first(ranks, arcs_before[starts].astype(np.int32))
    return depths


def _greater_among_first(values: Small, firsts: Small) -> Small:
    """For each place, how many of the first ``firsts[place]`` elements of ``values``, a permutation of ``0 .. n - 1``, are greater.

    From the highest bit on, ``row`` holds the values sorted by the bits seen so far, otherwise in their old order: a node of values that
    agree in those bits begins at the least of them, and half of what lies before it has a 0 in the next bit, as all earlier nodes are
    full. ``end`` is where a place's first elements end in its value's node; those there with a 1 where the value has a 0 are greater.
    """
    greater = np.zeros_like(values)
    row, places = values, np.arange(len(values), dtype=np.int32)
    zeros = np.zeros(len(values) + 1, dtype=np.int32)
    end = firsts.copy()
    for bit in reversed(range(int(len(values) - 1).bit_length())):
        half = np.int32(1 << bit)
        np.cumsum((row & half) == 0, dtype=np.int32, out=zeros[1:])

        node = values & ~(2 * half - 1)
        zeros_in = zeros[end] - (node >> 1)
        ones_in = end - node - zeros_in
        has_one = (values & half) != 0
        greater += np.where(has_one, 0, ones_in)
        end = node + np.where(has_one, half + ones_in, zeros_in)

        row_node = row & ~(2 * half - 1)
        zeros_before = zeros[:-1] - (row_node >> 1)
        to = np.where((row & half) != 0, half + places - zeros_before, row_node + zeros_before)
        sorted_further = np.empty_like(row)
        sorted_further[to] = row
        row = sorted_further
    return greater
