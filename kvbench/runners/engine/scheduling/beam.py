"""A beam: a sequence as one of the hypotheses that a beam search follows at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch


class Search(Protocol):
    """The search that a beam is a part of, as far as a beam and its sequence know it."""

    @property
    def width(self) -> int:
        """How many beams it has."""

    def leave(self, sequence: Any) -> None:
        """Go on without this sequence."""


class Candidate(NamedTuple):
    """A token that may come next, and its log-probability behind the beam's tokens."""

    token: int
    log_probability: float


@dataclass(slots=True)
class Beam:
    """A sequence's part in a beam search."""

    search: Search
    score: float = 0.0
    """Sum of the log-probabilities of its output tokens."""
    candidates: list[Candidate] | None = None
    """The most likely next tokens, best first, while the search waits for those of its other beams."""


def offer(logits: torch.Tensor, beams: Sequence[Beam]) -> None:
    """Give each beam its candidates, as many as its search has beams, from ``[beams, vocabulary]``; in float64, as scores are sums."""
    if not beams:
        return
    widths = [beam.search.width for beam in beams]
    best = logits.double().log_softmax(-1).topk(max(widths))
    for beam, width, tokens, values in zip(beams, widths, best.indices.tolist(), best.values.tolist(), strict=True):
        beam.candidates = [Candidate(*one) for one in zip(tokens[:width], values[:width], strict=True)]
