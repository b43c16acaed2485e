"""`--context N`: two requests of which the second is preempted once, with exactly N tokens of history, and comes back alone."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.experiments.pressure.history import TwoRequests, arrange
from kvbench.runners.engine.scheduling.sequence import Sequence
from tests.configs import loaded
from tests.runners.engine.driver import FakeEngine, check_answers


def run_two(context: int, block_size: int, budget: int, swap_tokens: int | None) -> tuple[FakeEngine, Sequence, Sequence]:
    """Both requests, to their end, in the pool that was arranged for them."""
    two = arrange(context, block_size, budget)
    engine = FakeEngine(two.pool_blocks, block_size, budget, swap_tokens=swap_tokens, prefix_cache=False)
    first, second = (
        engine.submit(name, [number + 7 * place for place in range(prompt)], output)
        for number, (name, prompt, output) in enumerate(zip("ab", two.prompts, two.outputs, strict=True))
    )
    while engine.is_busy:
        engine.step()
    check_answers(engine, [first, second])
    return engine, first, second


def check_history(context: int, block_size: int, budget: int, swaps: bool) -> None:
    """All that a comparison of recompute and restore rests on."""
    engine, first, second = run_two(context, block_size, budget, -(-context // block_size) * block_size if swaps else None)
    assert (first.preemptions, second.preemptions, len(second.stalls)) == (0, 1, 1)
    [preempted] = [event for event in engine.journal.events if event["event"] == "preempt"]
    assert (preempted["request_id"], preempted["tokens"]) == ("b", context)
    counted = engine.counters
    assert (counted.recomputed_tokens, counted.swapped_out_tokens, counted.swapped_in_tokens) == (
        (0, context, context) if swaps else (context, 0, 0)
    )
    [gone] = [place for place, event in enumerate(engine.journal.events) if (event["event"], event.get("request_id")) == ("finish", "a")]
    [back] = [place for place, event in enumerate(engine.journal.events) if event["event"] == "resume"]
    assert gone < back
    ups = [event for event in engine.journal.events if event["event"] == "catch up"]
    assert sum(int(str(event["tokens"])) for event in ups) == (0 if swaps else context)
    steps = [batch for batch in engine.batches if any(sequence is second and start == 0 for sequence, start, _ in batch)]
    assert len(steps) == (1 if swaps else 2)
    if not swaps:
        assert steps[1] == [(second, 0, min(context + 1, budget))]  # alone, all of the budget, from the first token on


@pytest.mark.parametrize("swaps", [False, True], ids=["recompute", "swap"])
@pytest.mark.parametrize("budget", [3, 16, 64, 2048])
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("context", [16, 17, 64, 200])
def test_the_second_request_gives_way_once_with_exactly_that_history_and_comes_back_alone(
    context: int, block_size: int, budget: int, swaps: bool
) -> None:
    check_history(context, block_size, budget, swaps)


@settings(deadline=None, max_examples=40)
@given(st.integers(16, 300), st.integers(1, 40), st.integers(3, 400), st.booleans())
def test_that_holds_for_any_history_block_size_and_budget(context: int, block_size: int, budget: int, swaps: bool) -> None:
    check_history(context, block_size, budget, swaps)


def test_few_tokens_are_answered_before_the_history_is_there() -> None:
    assert arrange(512, 16, 2048) == TwoRequests(prompts=(15, 511), outputs=(3, 6), pool_blocks=33)
    for context, budget in itertools.product((16, 1000, 65536), (64, 512, 8192)):
        assert context - arrange(context, 16, budget).prompts[1] <= 16


def test_a_budget_of_two_tokens_is_refused_with_the_option() -> None:
    with pytest.raises(ValueError, match="--max-batch-tokens 2 is too small for --context, which needs 3 or more"):
        arrange(64, 16, 2)


def test_the_pool_of_a_run_is_the_arranged_one_and_room_is_not_reserved() -> None:
    config = loaded(None, {"experiment": "pressure", "context": 512})
    assert (config.pool_tokens, config.batch_requests) == (33 * 16, 2)
    assert config.arms == ("ample", "recompute", "swap")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"arm": ("reserve",)}, "nothing runs short there"),
        ({"requests": 4}, "--context says what the two requests are"),
        ({"kv_tokens": 4096}, "--context says what the two requests are"),
        ({"rate": 2.0}, "--context says what the two requests are"),
        ({"victim": "least-computed"}, "--context says what the two requests are"),
        ({"runner": "vllm"}, "the runner is vllm"),
        ({"max_batch_tokens": 2}, "too small for --context"),
    ],
)
def test_what_a_context_excludes_is_wrong_use(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        loaded(None, {"experiment": "pressure", "context": 512, **options})
