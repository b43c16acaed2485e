"""Two requests, arranged so that the second one is preempted once, with a history of exactly as many tokens as asked for.

The engine computes running requests oldest first under a token budget, a decoding one a token a step. The first request has a short
prompt, the second one's prompt lacks a few tokens of the history; both decode until the first needs a block and there is none: just
then the second has the history computed. The first one ends in that step, so the second comes back alone, into a pool that has room.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from kvbench.models.units import ceil_div

AFTER = 4
"""Tokens that the second request is still given when it is back."""

SMALLEST_BUDGET = 3
"""With 2, each request gets a token a step, and whether the two ever meet depends on the history being even."""


@dataclass(frozen=True, slots=True)
class TwoRequests:
    """Prompt and output tokens of the first request and of the second, and the blocks of the pool in which the second is preempted."""

    prompts: tuple[int, int]
    outputs: tuple[int, int]
    pool_blocks: int


def arrange(context: int, block_size: int, budget: int) -> TwoRequests:
    """The two requests of a history of ``context`` tokens, with as few answered before it as there can be.

    Args:
        context: tokens with KV when the second request is preempted: its prompt, and its output but for the last token.
        budget: tokens that a step computes at most.

    Raises:
        ValueError: the budget is below :data:`SMALLEST_BUDGET`.
    """
    if budget < SMALLEST_BUDGET:
        raise ValueError(f"--max-batch-tokens {budget} is too small for --context, which needs {SMALLEST_BUDGET} or more")
    for delivered, prompt in product(range(2, context + 1), range(1, 2 * block_size + 1)):
        held = _held(context, delivered, prompt, budget)
        if held >= AFTER and held % block_size == 0:
            outputs = (held - prompt + 2, delivered + AFTER)
            return TwoRequests((prompt, context - delivered + 1), outputs, held // block_size + ceil_div(context, block_size))
    raise ValueError(f"--context {context}: no two requests meet there with --block-size {block_size}; raise --context")


def _held(context: int, delivered: int, prompt: int, budget: int) -> int:
    """Tokens the first request has KV of when the second has ``context``, ``delivered`` of its answer given.

    A step's budget goes to the first request, what that leaves to the second.
    """
    steps = ceil_div(prompt, budget)
    lacking = context - delivered + 1 - (steps * budget - prompt)  # of the second one's prompt, when the first begins to decode
    return prompt + max(ceil_div(lacking, budget - 1), 0) + delivered - 1
