"""Sizes of the working set, against counting every prefix."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kvbench.analysis.sizing import working_set_chunks

sequences = st.lists(st.lists(st.integers(0, 1), max_size=12), max_size=12)
"""Two token ids only, so that many sequences share their heads."""


def distinct(found: list[list[int]], unit: int) -> int:
    """Every prefix that ends with a full unit, once."""
    return len({tuple(tokens[:end]) for tokens in found for end in range(unit, len(tokens) + 1, unit)})


@given(sequences, st.integers(1, 5))
@example([[0, 0, 1], [0, 1]], 1)  # distinct tokens
@example([[0, 0, 1], [0, 0, 0, 0]], 2)  # the common head ends inside a chunk
def test_chunks_are_the_distinct_prefixes_of_whole_chunks(found: list[list[int]], chunk: int) -> None:
    assert working_set_chunks(found, chunk) == distinct(found, chunk)


def test_no_sequence_takes_no_room() -> None:
    assert working_set_chunks([], 4) == working_set_chunks([[]], 1) == 0
