"""What the simulator's tests read: documents in cyclic order, as token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvbench.runners.profiles import Profile
from kvbench.runners.simulator.simulator import CacheSizes, DocumentSimulator, PromptSimulator, TierTokens, make_simulator


def prompt(document: int, tokens: int, question: int = 0) -> list[int]:
    """A prompt that shares no block with another document's; the last 14 tokens are the question."""
    return [document, *range(1000, 1000 + tokens - 15), *range(10_000 + question, 10_014 + question)]


def read_passes(
    simulator: PromptSimulator | DocumentSimulator,
    tokens: int,
    output: int,
    docs: int = 10,
    question: Callable[[int], int] = lambda index: 0,
) -> list[list[TierTokens]]:
    """Sequential, repeat, reverse: tokens by tier of each request, by pass, in the order of reading."""
    orders: list[Iterable[int]] = [range(docs), range(docs), reversed(range(docs))]
    return [
        [simulator.read(prompt(document, tokens, question(index)), output, document) for document in order]
        for index, order in enumerate(orders)
    ]


def cyclic(profile: Profile, capacity: CacheSizes, tokens: int, output: int = 8, docs: int = 10) -> list[list[TierTokens]]:
    """The passes of a cold simulator, the same question in each."""
    return read_passes(make_simulator(profile, capacity), tokens, output, docs)


def totals(passes: list[list[TierTokens]], tier: str) -> list[int]:
    """Tokens from one tier, by pass."""
    return [sum(getattr(tokens, tier) for tokens in requests) for requests in passes]
