"""Beam search inside the engine: what transformers finds, with blocks shared, copied, taken away and brought back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from heapq import nlargest
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.transfer import make_transfer
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.model.sampling import Sampling
from kvbench.runners.engine.scheduling.allocation import reserve
from kvbench.runners.engine.scheduling.beam_search import BeamSearch, Hypothesis
from kvbench.runners.engine.scheduling.scheduler import Scheduler, Work
from kvbench.runners.engine.scheduling.sequence import Candidate
from kvbench.runners.engine.scheduling.sequence import Sequence as EngineSequence
from kvbench.testing.fake_transfer import DelayedTransfer
from tests.runners.engine.driver import FakeEngine, check_answers, check_invariants, fingerprints, poison
from tests.runners.engine.reference import DEVICE, Reference, WatchedEngine, draw
from tests.runners.engine.scheduling.test_scheduler import tokens

SCORES = 1e-4
"""transformers sums log-probabilities in float32."""


def by_transformers(reference: Reference, prompt: list[int], max_tokens: int, beams: int) -> list[Hypothesis]:
    """All hypotheses of ``generate``, best first; its length penalty off, as all have one length."""
    found = reference.network.generate(
        torch.tensor([prompt], device=DEVICE),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long, device=DEVICE),
        num_beams=beams,
        num_return_sequences=beams,
        do_sample=False,
        min_new_tokens=max_tokens,
        max_new_tokens=max_tokens,
        length_penalty=0.0,
        return_dict_in_generate=True,
        output_scores=True,
        pad_token_id=0,
    )
    outputs = [row[len(prompt) :] for row in found.sequences.tolist()]
    return [Hypothesis(*one) for one in zip(outputs, found.sequences_scores.tolist(), strict=True)]


def run(engine: Engine, at_most: int = 2000) -> None:
    step = 0
    while engine.is_busy:
        engine.step()
        step += 1
        assert step < at_most, "no progress"
    engine.drain()
    assert engine.pool.free_blocks == engine.pool.num_blocks


def same(found: list[Hypothesis], right: list[Hypothesis]) -> bool:
    return [one.tokens for one in found] == [one.tokens for one in right] and all(
        math.isclose(one.score, other.score, abs_tol=SCORES) for one, other in zip(found, right, strict=True)
    )


@pytest.mark.parametrize("options", [{}, {"copy_on_write": False}, {"budget": 5}, {"prefix_cache": False}, {"host": 128}], ids=str)
@pytest.mark.parametrize("size", [1, 4, 16])
def test_hypotheses_and_scores_are_those_of_transformers(model: Model, reference: Reference, size: int, options: dict[str, Any]) -> None:
    engine = WatchedEngine(model, blocks=1024 // size, block_size=size, **options)
    poison(engine)
    other = engine.submit("other", draw(9, 13), 10)
    asked = [(draw(length, length), beams) for length, beams in ((7, 4), (16, 2), (21, 4), (5, 3))]
    searches = [engine.submit_beams(str(number), prompt, 10, beams) for number, (prompt, beams) in enumerate(asked)]
    run(engine)
    for search, (prompt, beams) in zip(searches, asked, strict=True):
        assert same(search.hypotheses(), by_transformers(reference, prompt, 10, beams))
    assert other.tokens[13:] == reference.answer(draw(9, 13), 10).tokens


def test_one_beam_is_greedy(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model)
    search = engine.submit_beams("0", draw(3, 14), 12, 1)
    run(engine)
    [found] = search.hypotheses()
    answer = reference.answer(draw(3, 14), 12)
    assert found.tokens == answer.tokens
    right = answer.logits.log_softmax(-1).gather(1, torch.tensor(answer.tokens, device=DEVICE)[:, None]).sum()
    assert found.score == pytest.approx(float(right), abs=1e-9)
    assert (engine.counters.copied_blocks, engine.counters.computed_tokens) == (0, 14 + 11)


def test_one_token_needs_no_kv_of_its_own(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model, blocks=3, copy_on_write=False)
    search = engine.submit_beams("0", draw(3, 11), 1, 4)
    assert engine.step() == search.sequences
    assert same(search.hypotheses(), by_transformers(reference, draw(3, 11), 1, 4))
    assert (engine.pool.free_blocks, engine.counters.copied_blocks) == (3, 0)
    assert not [event for event in engine.take_events() if event["event"] == "fork"]


@pytest.mark.parametrize("swap", [None, 20, 400])
@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("copy_on_write", [True, False])
def test_a_search_under_pressure_finds_the_same(
    model: Model, reference: Reference, swap: int | None, prefix_cache: bool, copy_on_write: bool
) -> None:
    for blocks in (6, 9, 13):  # the longest request alone takes 6
        engine = WatchedEngine(model, blocks=blocks, budget=6, swap_tokens=swap, prefix_cache=prefix_cache, copy_on_write=copy_on_write)
        poison(engine)
        searches = [engine.submit_beams(str(number), draw(number, 11), 14, beams) for number, beams in enumerate((4, 2))]
        run(engine)
        assert engine.counters.preemptions > 1 or not copy_on_write
        for number, search in enumerate(searches):
            assert same(search.hypotheses(), by_transformers(reference, draw(number, 11), 14, search.width))


@pytest.mark.parametrize("swap", [None, 400])
@pytest.mark.parametrize("budget", [2, 2048])  # with 2, some beams are held when another is preempted
def test_a_preemption_of_any_beam_at_any_step_changes_nothing(model: Model, reference: Reference, swap: int | None, budget: int) -> None:
    right, step, preempted, busy = by_transformers(reference, draw(5, 6), 5, 3), 0, 0, True
    while busy:
        for beam in range(3):
            engine = WatchedEngine(model, blocks=40, budget=budget, swap_tokens=swap, prefix_cache=False)
            poison(engine)
            search = engine.submit_beams("0", draw(5, 6), 5, 3)
            for _ in range(step):
                engine.step()
            busy = engine.is_busy
            if search.sequences[beam] in engine.scheduler.running:
                engine.scheduler.preempt(search.sequences[beam])
                preempted += 1
            run(engine)
            assert same(search.hypotheses(), right)
        step += 1
    assert preempted > 3 * (step - 4)


# Arithmetic instead of the model, from here on.

ALPHABET = 8


def candidates(mark: int, width: int) -> list[Candidate]:
    """The best continuations of whatever has this fingerprint."""
    values = [(-1 - fingerprints([token], mark)[0] % 10007 / 1000, token) for token in range(ALPHABET)]
    return [Candidate(token, value) for value, token in nlargest(width, values)]


class BeamEngine(FakeEngine):
    """Gives beams their candidates, and follows a sequence whose tokens are exchanged."""

    def marks_of(self, sequence: EngineSequence) -> list[int]:
        self._marks.pop(sequence, None)
        return super().marks_of(sequence)

    def _compute(self, batch: list[Work]) -> dict[int, int]:
        chosen = super()._compute(batch)
        for work in batch:
            if work.searched is not None:
                work.searched.candidates = candidates(self.marks_of(work.sequence)[work.end - 1], work.searched.search.width)
        return chosen

    def _deliver(self, work: Work, tokens: dict[int, int]) -> list[EngineSequence]:
        given = super()._deliver(work, tokens)
        self.marks_of(work.sequence)  # a beam is given nothing here, and its full blocks are findable now
        return given


def expected_beams(prompt: list[int], max_tokens: int, width: int) -> list[Hypothesis]:
    """A beam search on one page."""
    beams = [Hypothesis([], 0.0)]
    for _ in range(max_tokens):
        found = [
            Hypothesis([*beam.tokens, token], beam.score + value)
            for beam in beams
            for token, value in candidates(fingerprints([*prompt, *beam.tokens])[-1], width)
        ]
        beams = nlargest(width, found, key=lambda one: one.score)
    return beams


def check_search(search: BeamSearch) -> None:
    """Every hypothesis is another one, its score is that of its tokens, and its tokens came one after the other, all at once."""
    found = search.hypotheses()
    assert len({tuple(one.tokens) for one in found}) == len(found)
    for sequence in search.sequences:
        prompt, score = sequence.tokens[: sequence.prompt_tokens], 0.0
        for place in range(sequence.prompt_tokens, len(sequence.tokens)):
            score += dict(candidates(fingerprints(sequence.tokens[:place])[-1], ALPHABET))[sequence.tokens[place]]
        assert sequence.beam is not None
        assert sequence.beam.score == pytest.approx(score)
        assert len(sequence.token_times) == sequence.output_tokens
        assert prompt == search.sequences[0].tokens[: sequence.prompt_tokens]
        assert sequence.token_times == search.sequences[0].token_times


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_blocks_held_are_those_of_the_tree_of_hypotheses(size: int, prefix_cache: bool) -> None:
    engine = BeamEngine(200, size, alphabet=ALPHABET, prefix_cache=prefix_cache)
    poison(engine)
    search = engine.submit_beams("0", tokens(0, 9), 20, 4)
    while True:
        finished = engine.step()
        check_invariants(engine)
        if finished:
            break
        heads = {
            tuple(beam.tokens[: min(start + size, beam.computed)]) for beam in search.sequences for start in range(0, beam.computed, size)
        }
        assert engine.pool.used_blocks == len(heads)  # each block of tokens that differ once, however many beams have it
    assert engine.pool.free_blocks == 200
    assert search.hypotheses() == expected_beams(tokens(0, 9), 20, 4)


def test_copying_holds_every_beam_whole() -> None:
    engine = BeamEngine(200, 4, alphabet=ALPHABET, copy_on_write=False)
    search = engine.submit_beams("0", tokens(0, 9), 20, 4)
    while not engine.step():
        assert engine.pool.used_blocks == sum(len(beam.block_table) for beam in search.sequences)
        check_invariants(engine)
    assert search.hypotheses() == expected_beams(tokens(0, 9), 20, 4)


def test_what_a_beam_is_told_of_its_prompt_sums_to_it() -> None:
    engine = BeamEngine(200, 4, alphabet=ALPHABET)
    search = engine.submit_beams("0", tokens(0, 9), 20, 4)
    while engine.is_busy:
        engine.step()
    assert [(beam.device_hit, beam.host_hit) for beam in search.sequences] == [(0, 0), (9, 0), (9, 0), (9, 0)]


def test_what_is_computed_again_after_a_preemption_is_counted_as_rebuilt_whosever_it_was() -> None:
    waited = 0
    for blocks in (4, 5, 6, 7):  # one beam takes 4 at its end
        engine = BeamEngine(blocks, 4, alphabet=ALPHABET, prefix_cache=False)
        engine.submit_beams("0", tokens(0, 6), 10, 4)
        while engine.is_busy:
            engine.step()
        counters = engine.counters
        assert counters.computed_tokens - counters.recomputed_tokens == 6 + 4 * 9
        waited += counters.waited_forks
    assert waited > 0  # some went on from the tokens of a beam that had given way


def test_a_beam_that_is_cancelled_leaves_the_others_to_go_on() -> None:
    for step in range(12):
        for beam in range(3):
            engine = BeamEngine(60, 4, budget=2, alphabet=ALPHABET)
            poison(engine)
            search = engine.submit_beams("0", tokens(0, 5), 6, 3)
            sequences = list(search.sequences)
            for _ in range(step):
                engine.step()
            engine.cancel(sequences[beam])
            while engine.is_busy:
                engine.step()
                check_invariants(engine)
            assert [sequence.finished for sequence in sequences] == [number != beam for number in range(3)]
            check_search(search)
            assert engine.pool.free_blocks == 60


def test_when_the_beam_that_all_wait_for_is_cancelled_they_choose_without_it() -> None:
    engine = BeamEngine(60, 4, budget=1, alphabet=ALPHABET)
    search = engine.submit_beams("0", tokens(0, 1), 6, 2)
    first, second = search.sequences
    engine.step()
    engine.step()  # the first has its candidates, the second not
    assert (first.held, second.held) == (True, False)
    engine.scheduler.preempt(first)
    engine.cancel(second)
    while engine.is_busy:
        engine.step()
    assert (first.output_tokens, second.output_tokens) == (6, 1)
    check_search(search)


def delayed(store: KVStore) -> DelayedTransfer:
    return DelayedTransfer(make_transfer(store))


def test_blocks_that_a_copy_still_holds_are_waited_for_before_a_beam_that_waits_gives_way() -> None:
    engine = BeamEngine(4, 4, budget=1, alphabet=ALPHABET, swap_tokens=400, prefix_cache=False, transfer=delayed)
    first, second, third = engine.submit_beams("0", tokens(0, 5), 4, 3).sequences
    for _ in range(6):
        engine.step()
    assert (first.held, second.held, third.held) == (True, False, False)
    engine.scheduler.preempt(second)
    engine.scheduler.preempt(third)
    assert engine.pool.free_blocks == 1  # and the second needs two
    engine.step()
    assert (first.preemptions, second in engine.scheduler.running) == (0, True)
    while engine.is_busy:
        engine.step()
        check_invariants(engine)
    assert engine.pool.free_blocks == 4


@st.composite
def plans(draw: Any) -> dict[str, Any]:
    """Searches, samples and plain requests on a small pool, and when each is cancelled, if it is."""
    size = draw(st.sampled_from([1, 2, 4]))
    requests = [
        (draw(st.sampled_from(["beams", "samples", "plain"])), draw(st.integers(1, 9)), draw(st.integers(1, 8)), draw(st.integers(1, 4)))
        for _ in range(draw(st.integers(1, 4)))
    ]
    alone = max(-(-(prompt + output - 1) // size) for _, prompt, output, _ in requests)
    return {
        "requests": requests,
        "cancelled": draw(st.dictionaries(st.integers(0, 15), st.integers(0, 30), max_size=8)),
        "engine": {
            "blocks": alone + draw(st.integers(0, 12)),
            "block_size": size,
            "budget": draw(st.sampled_from([1, 3, 64])),
            "swap_tokens": draw(st.sampled_from([None, 0, 8, 400])),
            "prefix_cache": draw(st.booleans()),
            "copy_on_write": draw(st.booleans()),
            "transfer": draw(st.sampled_from([make_transfer, delayed])),
        },
    }


@settings(max_examples=150, deadline=None)
@given(plans())
def test_whatever_is_cancelled_and_preempted_no_block_is_lost_and_the_others_find_what_they_should(plan: dict[str, Any]) -> None:
    engine = BeamEngine(alphabet=ALPHABET, **plan["engine"])
    poison(engine)
    searches: list[BeamSearch] = []
    plain: list[EngineSequence] = []
    everything: list[EngineSequence] = []
    for number, (kind, prompt, output, count) in enumerate(plan["requests"]):
        words = [100 * number + token for token in range(prompt)]
        if kind == "beams":
            searches.append(engine.submit_beams(str(number), words, output, count))
            everything += searches[-1].sequences
        else:
            samplings = [Sampling(1.0, seed) for seed in range(count if kind == "samples" else 1)]
            asked = engine.submit_samples(str(number), words, output, samplings)
            plain += asked
            everything += asked
    whole = [(search, search.width) for search in searches]
    step = 0
    while engine.is_busy:
        for victim, when in plan["cancelled"].items():
            if when == step and victim < len(everything):
                engine.cancel(everything[victim])
        engine.step()
        check_invariants(engine)
        step += 1
        assert step < 3000, "no progress"
    engine.drain()
    assert engine.pool.free_blocks == engine.pool.num_blocks
    assert all(sequence.finished != sequence.cancelled for sequence in everything)
    check_answers(engine, plain)
    for search, width in whole:
        check_search(search)
        if search.width == width:
            sequence = search.sequences[0]
            prompt = sequence.tokens[: sequence.prompt_tokens]
            assert search.hypotheses() == expected_beams(prompt, sequence.max_tokens, width)


def test_what_cannot_be_searched_is_refused() -> None:
    engine = BeamEngine(20, alphabet=ALPHABET)
    with pytest.raises(UsageError, match="0 beams were asked for; ask for 1 or more"):
        engine.submit_beams("r", tokens(0, 4), 4, 0)
    with pytest.raises(UsageError, match="9 beams begin with a token each, and the vocabulary has 8; lower --beams"):
        engine.submit_beams("r", tokens(0, 4), 4, 9)
    with pytest.raises(UsageError, match="a reservation keeps room for one output"):
        BeamEngine(20, alphabet=ALPHABET, allocation=reserve).submit_beams("r", tokens(0, 4), 4, 2)
    search = engine.submit_beams("r", tokens(0, 4), 4, 2)
    with pytest.raises(ValueError, match="request r/0 is a beam"):
        engine.fork(search.sequences[0], "child")


# A broken search is noticed.


def wrong(model: Model, reference: Reference) -> bool:
    engine = WatchedEngine(model)
    search = engine.submit_beams("0", draw(5, 11), 10, 4)
    run(engine)
    return not same(search.hypotheses(), by_transformers(reference, draw(5, 11), 10, 4))


def _never(scheduler: Scheduler, sequence: EngineSequence) -> None:
    """No block is ever copied."""


def _not_copied(store: KVStore, source: int, target: int) -> None:
    """A block is exchanged, its content is not."""


def _own_best(search: BeamSearch, choose: Callable[[BeamSearch], Sequence[Any]]) -> Sequence[Any]:
    """Choose as if every candidate had the best one's log-probability."""
    for sequence in search._parents:
        beam = sequence.beam
        assert beam is not None
        assert beam.candidates is not None
        beam.candidates = [Candidate(token, beam.candidates[0].log_probability) for token, _ in beam.candidates]
    return choose(search)


@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        (Scheduler, "_shared", _never),
        (KVStore, "copy_block", _not_copied),
        (BeamSearch, "choose", partial(_own_best, choose=BeamSearch.choose)),
    ],
    ids=["never copies", "copies nothing", "ignores scores"],
)
def test_a_fault_is_noticed(
    model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, fault: Callable[..., Any]
) -> None:
    assert not wrong(model, reference)
    monkeypatch.setattr(owner, name, lambda *arguments: fault(*arguments))
    assert wrong(model, reference)
