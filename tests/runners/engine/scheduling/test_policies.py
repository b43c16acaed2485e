"""What the victim and allocation policies say, to the token; that everything ends whatever they say is the scheduler's test."""

from __future__ import annotations

from kvbench.runners.engine.scheduling.allocation import on_demand, reserve, reserve_each
from kvbench.runners.engine.scheduling.preemption import least_computed, newest
from kvbench.runners.engine.scheduling.sequence import Sequence
from tests.runners.engine.driver import FakeEngine


def running(*computed: int) -> list[Sequence]:
    """Sequences in order of arrival that have so many tokens of KV each."""
    engine = FakeEngine(64)
    sequences = [engine.submit(str(number), list(range(8)), 4) for number in range(len(computed))]
    for sequence, tokens in zip(sequences, computed, strict=True):
        sequence.computed = tokens
    return sequences


def test_the_newest_is_the_one_that_arrived_last() -> None:
    candidates = running(8, 2, 5)
    assert newest(candidates) is candidates[2]


def test_the_least_computed_is_the_newest_among_equals() -> None:
    candidates = running(8, 3, 3, 5)
    assert least_computed(candidates) is candidates[2]


def test_a_reservation_is_for_the_whole_answer_but_its_last_token_which_has_no_kv() -> None:
    [sequence] = running(0)
    assert (on_demand(sequence, 5), reserve(sequence, 5), reserve_each(48)(sequence, 5)) == (5, 8 + 4 - 1, 48)
