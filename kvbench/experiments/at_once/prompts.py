"""Made prompts of which no two begin alike, so that requests share no KV unless an experiment lets them."""

from __future__ import annotations

from kvbench.workloads.draws import Draws


def distinct_prompt(first: int, position: int, length: int, vocab: int, draws: Draws) -> tuple[int, ...]:
    """A prompt that begins as no other does, up to as many as there are token ids.

    Args:
        first: the first token of prompt 0; each further prompt begins one further on.
        draws: of this prompt, for the tokens behind the first.
    """
    return (first + position) % vocab, *draws.integers(length - 1, 0, vocab)
