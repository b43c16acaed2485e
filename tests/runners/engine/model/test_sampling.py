"""Sampling: the distribution, and that a draw depends on nothing but the request's seed and the token's place."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from kvbench.errors import UsageError
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.model.sampling import GREEDY, Pick, Sampling, choose
from tests.runners.engine.reference import DEVICE, Reference, WatchedEngine, draw

LOGITS = torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5], [3.0, 3.0, 0.0, 0.0, 3.0]])


def drawn(temperature: float, count: int, row: int = 0) -> Counter[int]:
    return Counter(choose(LOGITS, [Pick(row, Sampling(temperature, seed), place) for seed in range(count // 50) for place in range(50)]))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_tokens_are_drawn_as_often_as_the_softmax_says(temperature: float) -> None:
    count = 20_000
    found = drawn(temperature, count)
    for token, probability in enumerate(torch.softmax(LOGITS[0].double() / temperature, 0).tolist()):
        deviation = (probability * (1 - probability) / count) ** 0.5
        assert abs(found[token] / count - probability) < 4 * deviation


def test_greedy_takes_the_most_likely_and_the_first_among_equals() -> None:
    assert choose(LOGITS, [Pick(1, GREEDY, 0), Pick(0, GREEDY, 3), Pick(1, Sampling(0.0, 9), 1)]) == [0, 2, 0]
    assert choose(LOGITS[:0], []) == []


def test_a_temperature_near_zero_is_greedy_and_a_token_without_probability_is_never_drawn() -> None:
    assert set(drawn(1e-300, 500)) == {2}
    masked = torch.tensor([[float("-inf"), 0.0, float("-inf"), 0.0, float("-inf")]])
    found = Counter(choose(masked, [Pick(0, Sampling(1.0, seed), 0) for seed in range(500)]))
    assert set(found) == {1, 3}


def test_a_draw_does_not_depend_on_the_batch() -> None:
    logits = torch.randn(9, 512, generator=torch.Generator().manual_seed(3))
    picks = [Pick(row % 9, Sampling(0.9 if row % 3 else 0.0, row), row % 5) for row in range(30)]
    together = choose(logits, picks)
    assert together == [choose(logits, [pick])[0] for pick in picks]
    assert together == [choose(logits[pick.row : pick.row + 1], [Pick(0, pick.sampling, pick.place)])[0] for pick in picks]


def test_seeds_places_and_children_draw_differently() -> None:
    flat = torch.zeros(1, 64)
    samplings = [Sampling(1.0, seed) for seed in range(20)] + [Sampling(1.0, 7).child(number) for number in range(20)]
    answers = [tuple(choose(flat, [Pick(0, sampling, place) for place in range(20)])) for sampling in samplings]
    assert len(set(answers)) == len(answers)
    assert min(len(set(answer)) for answer in answers) > 10


@pytest.mark.parametrize("temperature", [-0.1, float("inf"), float("nan")])
def test_what_is_no_temperature_is_refused(temperature: float) -> None:
    with pytest.raises(UsageError, match="temperature"):
        Sampling(temperature)


@torch.inference_mode()
def by_transformers(reference: Reference, prompt: list[int], count: int, sampling: Sampling) -> list[int]:
    """Plain transformers' logits, the whole sequence each time, and our draw."""
    tokens = list(prompt)
    for place in range(count):
        logits = reference.network(input_ids=torch.tensor([tokens], device=DEVICE)).logits[0, -1:]
        tokens += choose(logits, [Pick(0, sampling, place)])
    return tokens[len(prompt) :]


def test_seeded_requests_answer_as_transformers_logits_say_whatever_else_runs(model: Model, reference: Reference) -> None:
    prompts = [draw(seed, 5 + 3 * seed) for seed in range(4)]
    samplings = [Sampling(0.8, 1), GREEDY, Sampling(1.3, 2), Sampling(0.8, 1)]
    for budget, alone in ((7, False), (2048, False), (2048, True)):
        engine = WatchedEngine(model, budget=budget)
        sequences = []
        for number, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True)):
            sequences.append(engine.submit(str(number), prompt, 12, sampling))
            while alone and engine.is_busy:
                engine.step()
        while engine.is_busy:
            engine.step()
        for prompt, sampling, sequence in zip(prompts, samplings, sequences, strict=True):
            assert sequence.tokens[len(prompt) :] == by_transformers(reference, prompt, 12, sampling)


def test_the_same_seed_is_the_same_answer_and_another_is_another(model: Model) -> None:
    engine = WatchedEngine(model)
    one, same, other = (engine.submit(str(number), draw(1, 20), 30, Sampling(1.0, seed)) for number, seed in enumerate((5, 5, 6)))
    while engine.is_busy:
        engine.step()
    assert one.tokens == same.tokens
    assert one.tokens != other.tokens
