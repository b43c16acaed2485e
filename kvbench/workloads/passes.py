"""Passes: in which order one reading of the documents goes."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass

from kvbench.workloads.draws import Draws

IN_ORDER = ("sequential", "repeat")
NAMES = (*IN_ORDER, "reverse", "shuffle")


@dataclass(frozen=True, slots=True)
class Pass:
    """One reading: its name as given, its place in the run, and the documents it reads, in order."""

    name: str
    index: int
    doc_ids: list[int]


def parse_pass(name: str) -> float | None:
    """The skew of ``zipf:S``, ``None`` for any other pass; ``ValueError``: no such pass, or a skew not above 0 and at most 20."""
    kind, separator, argument = name.partition(":")
    if not separator and kind in NAMES:
        return None
    if kind == "zipf" and separator:
        try:
            skew = float(argument)
        except ValueError:
            skew = 0.0
        if 0 < skew <= 20:
            return skew
        raise ValueError(f"{name!r}: the skew of zipf:S is a number above 0, at most 20, as in zipf:1.1")
    raise ValueError(f"{name!r} is no pass; there are {', '.join(NAMES)} and zipf:S")


def plan_passes(names: tuple[str, ...], docs: int, seed: int, reuse: float = 1.0) -> list[Pass]:
    """All passes of a run over documents ``0 .. docs - 1``.

    Args:
        names: passes in order, as :func:`parse_pass` knows them.
        reuse: share of the documents that passes after the first read again, rounded to whole documents. Which ones is drawn once, so
            every later pass reads the same ones again; the others are replaced by documents never read before, with new ids.
    """
    kept = set(Draws(seed, "reuse").shuffled(docs)[: round(reuse * docs)])
    unread = itertools.count(docs)
    passes = []
    for index, name in enumerate(names):
        ids = list(range(docs)) if index == 0 else [doc if doc in kept else next(unread) for doc in range(docs)]
        passes.append(Pass(name, index, [ids[place] for place in _order(name, docs, Draws(seed, "order", index))]))
    return passes


def _order(name: str, docs: int, draws: Draws) -> list[int]:
    """The places ``0 .. docs - 1`` in the order of the pass; ``zipf`` draws with replacement, P(place) ∝ 1 / (place + 1)^S."""
    skew = parse_pass(name)
    if skew is not None:
        sums = list(itertools.accumulate((place + 1) ** -skew for place in range(docs)))
        return [min(bisect_right(sums, draws.uniform() * sums[-1]), docs - 1) for _ in range(docs)]
    if name == "reverse":
        return list(reversed(range(docs)))
    return draws.shuffled(docs) if name == "shuffle" else list(range(docs))
