"""How much there is to hold: the working set in tokens, and what a host tier must keep of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

_ORDERED = np.dtype(">i8")


def working_set_chunks(sequences: Iterable[Sequence[int]], chunk: int) -> int:
    """Distinct full chunks of ``chunk`` tokens among all sequences: what a host tier must have room for to hold them all; with chunks of 1
    the distinct tokens, a head that sequences have in common counted once.

    Two positions are the same if everything up to and including them is equal, as a prefix cache sees it. In sorted order a sequence shares
    most with the one before it, so what is new is its length less their common head. Bytes, most significant first, are in the order of the
    ids they stand for, and take a quarter of the room of a list.
    """
    count, before = 0, np.empty(0, dtype=_ORDERED)
    for data in sorted(np.asarray(sequence, dtype=_ORDERED).tobytes() for sequence in sequences):
        tokens = np.frombuffer(data, dtype=_ORDERED)
        count += len(tokens) // chunk - _common_head(before, tokens) // chunk
        before = tokens
    return count


def _common_head(left: np.ndarray, right: np.ndarray) -> int:
    """Length of the longest common prefix."""
    short = min(len(left), len(right))
    differs = np.flatnonzero(left[:short] != right[:short])
    return int(differs[0]) if len(differs) else short
