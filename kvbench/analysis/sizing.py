"""How much there is to hold: the working set in tokens, and what a host tier must keep of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def working_set_tokens(sequences: Iterable[Sequence[int]]) -> int:
    """Distinct tokens of all sequences, a head they have in common counted once.

    Two positions are the same if everything up to and including them is equal, as a prefix cache sees it.
    """
    return _distinct_prefixes(sequences, 1)


def working_set_chunks(sequences: Iterable[Sequence[int]], chunk: int) -> int:
    """Distinct full chunks of ``chunk`` tokens among all sequences: what a host tier must have room for to hold them all."""
    return _distinct_prefixes(sequences, chunk)


def _distinct_prefixes(sequences: Iterable[Sequence[int]], unit: int) -> int:
    """In sorted order a sequence shares most with the one before it, so what is new is its length less their common head."""
    arrays = [np.asarray(tokens, dtype=np.int64) for tokens in sorted(list(sequence) for sequence in sequences)]
    count, before = 0, np.empty(0, dtype=np.int64)
    for tokens in arrays:
        count += len(tokens) // unit - _common_head(before, tokens) // unit
        before = tokens
    return count


def _common_head(left: np.ndarray, right: np.ndarray) -> int:
    """Length of the longest common prefix."""
    short = min(len(left), len(right))
    differs = np.flatnonzero(left[:short] != right[:short])
    return int(differs[0]) if len(differs) else short
