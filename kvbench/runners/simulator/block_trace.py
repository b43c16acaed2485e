"""A block trace: of each request the ids of its blocks, flat, so that millions of accesses are two arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kvbench.errors import UsageError

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BlockTrace:
    """Requests in order. Equal ids mean equal content and an equal whole prefix, so an id comes at most once in a request.

    ``ids``: of all accesses, head first within each request. ``starts``: where each request begins in it, and the end of the last one.
    """

    ids: Integers
    starts: Integers

    @classmethod
    def of(cls, requests: Iterable[Sequence[int] | Integers]) -> BlockTrace:
        """The trace of these requests; they are gone through once, and none is kept."""
        ids: list[npt.NDArray[np.int64]] = []
        lengths = [0]
        for request in requests:
            ids.append(np.asarray(request, dtype=np.int64))
            lengths.append(len(request))
        return cls(np.concatenate(ids) if ids else np.empty(0, np.int64), np.cumsum(lengths, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def accesses(self) -> int:
        """Blocks of all requests."""
        return len(self.ids)

    def requests(self) -> Iterator[list[int]]:
        """The ids of each request."""
        for start, end in pairwise(self.starts.tolist()):
            yield self.ids[start:end].tolist()

    def previous(self, ids: Integers) -> Integers:
        """For each place in ``ids`` (this trace's, in whatever order within a request) the place before it of the same id; −1: none.

        Raises ``UsageError``: an id comes twice in a request.
        """
        count = len(ids)
        order, same = _by_id(ids)
        before = np.full(count, -1, dtype=np.int64)
        before[order[1:][same]] = order[:-1][same]
        twice = np.flatnonzero(before >= np.repeat(self.starts[:-1], np.diff(self.starts)))
        if len(twice):
            request = int(np.searchsorted(self.starts, twice[0], side="right")) - 1
            raise UsageError(f"request {request} of the trace has block {int(ids[twice[0]])} twice; an id stands for a whole prefix")
        return before


def _by_id(ids: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """The places sorted by id, then by place; and for each but the first, whether its id is that of the one before."""
    count = len(ids)
    shift = max(count, 1).bit_length()
    if count and ids.min() >= 0 and int(ids.max()).bit_length() + shift <= 63:
        packed = (ids << shift) | np.arange(count)  # one sort of plain numbers is several times faster than a stable argsort
        packed.sort()
        sorted_ids = packed >> shift
        return packed & ((1 << shift) - 1), sorted_ids[1:] == sorted_ids[:-1]
    order = np.argsort(ids, kind="stable")
    return order, ids[order[1:]] == ids[order[:-1]]
