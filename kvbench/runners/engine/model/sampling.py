"""Sampling: from a sequence's last logits to its next token.

The draw for a token depends on the request's seed and the token's place in the output alone, so neither the batch, a preemption nor the
order of requests changes what is sampled.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from kvbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a request's tokens are chosen. ``temperature`` 0: the most likely one, and the seed is not used."""

    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no temperature; raises ``UsageError`` if it is negative, infinite or not a number."""
        if not 0 <= self.temperature < math.inf:
            raise UsageError(f"a temperature of {self.temperature} is none: it is 0 (greedy) or above, and finite")

    def child(self, number: int) -> Sampling:
        """The same with a seed of its own: for sample ``number`` of a prompt that is sampled several times."""
        return replace(self, seed=_hash(self.seed, "child", number))


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Pick:
    """One token to choose: from which row of logits, how, and as which token of the output, from 0."""

    row: int
    sampling: Sampling
    place: int


def choose(logits: torch.Tensor, picks: Sequence[Pick]) -> list[int]:
    """The token of each pick, from ``[rows, vocabulary]``; several picks may name one row."""
    greedy = logits.argmax(dim=-1).tolist() if any(not pick.sampling.temperature for pick in picks) else []
    drawn = iter(_draw(logits, [pick for pick in picks if pick.sampling.temperature]))
    return [next(drawn) if pick.sampling.temperature else greedy[pick.row] for pick in picks]


def _draw(logits: torch.Tensor, picks: Sequence[Pick]) -> list[int]:
    """By inverse of the cumulative distribution, in float64: the first token at which it exceeds the pick's uniform number."""
    if not picks:
        return []
    rows = logits[[pick.row for pick in picks]].double()
    temperatures, uniforms = rows.new_tensor([[pick.sampling.temperature, _uniform(pick)] for pick in picks]).T[:, :, None]
    cumulative = ((rows - rows.amax(-1, keepdim=True)) / temperatures).exp().cumsum(-1)
    found = torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)
    tokens: list[int] = found.clamp(max=logits.shape[-1] - 1).flatten().tolist()
    return tokens


def _uniform(pick: Pick) -> float:
    """In [0, 1), with 53 bits of SHA-256: the streams of torch's generators may change between releases."""
    return (_hash(pick.sampling.seed, "token", pick.place) >> 11) / 2**53


def _hash(seed: int, purpose: str, number: int) -> int:
    """64 bits."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()[:8], "big")
