"""What is known of a run's noise, one place at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownNoise:
    """One place where the same work differed: ``share``, by how much; ``of``: ``repeats``, ``passes`` or ``arms``; ``where``: in words."""

    share: float
    of: str
    where: str


def largest(known: Iterable[KnownNoise]) -> KnownNoise | None:
    """The largest; ``None``: nothing is known."""
    return max(known, key=lambda one: one.share, default=None)
