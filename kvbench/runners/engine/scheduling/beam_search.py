"""Beam search (after the article on paging): of all continuations of a prompt's beams, those with the best summed log-probability go on.

Every output has the same length, as everywhere in kvbench: the end-of-text token is a token like any other. So no hypothesis ends before
the others, a length penalty would divide all scores by the same number, and as many candidates as there are beams are enough (the twice
as many of transformers and vLLM stand in for hypotheses that ended).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple

from kvbench.runners.engine.scheduling.scheduler import Scheduler
from kvbench.runners.engine.scheduling.sequence import Beam, Sequence


@dataclass(frozen=True, slots=True)
class Continuation:
    """What a sequence goes on with: the tokens of ``parent``, which may be itself, and one more."""

    sequence: Sequence
    parent: Sequence
    token: int
    score: float


class Hypothesis(NamedTuple):
    """An output so far, and its score: the sum of its tokens' log-probabilities."""

    tokens: list[int]
    score: float


class BeamSearch:
    """The beams of one prompt. The first computes the prompt for all; from then on all go on together, whenever each has its candidates.

    A beam that is cancelled leaves the search, which goes on with one less.
    """

    def __init__(self, sequences: Several[Sequence]) -> None:
        self.sequences = list(sequences)
        self._parents = [sequences[0]]
        for sequence in sequences:
            sequence.beam = Beam(self)

    @property
    def width(self) -> int:
        """How many beams it has."""
        return len(self.sequences)

    @property
    def ready(self) -> bool:
        """Whether every beam that runs by itself has its candidates: in the beginning that is the first, later all."""
        return bool(self.sequences) and all(sequence.held for sequence in self._parents)

    @property
    def begun(self) -> bool:
        """Whether it has chosen at least once."""
        return self._parents is self.sequences

    @property
    def is_open(self) -> bool:
        """Whether any beam gets another token."""
        return any(not sequence.finished for sequence in self.sequences)

    def leave(self, sequence: Sequence) -> None:
        """Go on without a beam; the first still computes the prompt for the others."""
        self.sequences.remove(sequence)

    def choose(self) -> list[Continuation]:
        """The best continuations, one for each beam: first come those that stay with their own tokens, then those that take another's.

        Candidates and scores are the chosen ones' afterwards; the tokens are as before.
        """
        found = []
        for parent in self._parents:
            assert parent.beam is not None
            assert parent.beam.candidates is not None
            found += [(parent.beam.score + value, parent, token) for token, value in parent.beam.candidates]
        staying: dict[Sequence, Continuation] = {}
        others: list[tuple[float, Sequence, int]] = []
        for score, parent, token in nlargest(self.width, found, key=lambda one: one[0]):
            if parent in self.sequences and parent not in staying:
                staying[parent] = Continuation(parent, parent, token, score)
            else:
                others.append((score, parent, token))
        free = [sequence for sequence in self.sequences if sequence not in staying]
        moving = [Continuation(sequence, parent, token, score) for sequence, (score, parent, token) in zip(free, others, strict=True)]
        chosen = [*staying.values(), *moving]
        for one in chosen:
            one.sequence.beam = Beam(self, one.score)
        self._parents = self.sequences
        return chosen

    def hypotheses(self) -> list[Hypothesis]:
        """Every beam's output, best first."""
        outputs = [
            Hypothesis(sequence.tokens[sequence.prompt_tokens :], sequence.beam.score)
            for sequence in self.sequences
            if sequence.beam is not None
        ]
        return sorted(outputs, key=lambda one: -one.score)


class Searches:
    """The searches under way, and what a choice does to the KV of their beams."""

    def __init__(self, scheduler: Scheduler, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._open: list[BeamSearch] = []

    def add(self, search: BeamSearch) -> None:
        """Begin a search, whose first beam is queued."""
        self._open.append(search)

    def choose(self) -> list[Sequence]:
        """Let each search choose whose beams all have their candidates; returns who got a token."""
        given = [sequence for search in self._open if search.ready for sequence in self._choose(search)]
        self._open = [search for search in self._open if search.is_open]
        return given

    def _choose(self, search: BeamSearch) -> list[Sequence]:
        """Hand out a search's tokens; a beam that goes on from another's gives up its own KV and shares that one's."""
        begun, chosen = search.begun, search.choose()
        moving = [one for one in chosen if one.parent is not one.sequence]
        goes_on = any(one.parent.output_tokens + 1 < one.parent.max_tokens for one in chosen)  # a last token needs no KV
        if begun and goes_on:  # all give up theirs before any takes room
            for one in moving:
                self._scheduler.remove(one.sequence)
        for one in moving:
            one.sequence.follow(one.parent)
            if goes_on:
                self._scheduler.fork(one.parent, one.sequence)
            elif not begun:  # it is in no queue yet
                self._scheduler.submit(one.sequence)
        for parent in {one.parent for one in chosen}:
            parent.followers = []
            if parent.cancelled:  # it computed the prompt for the others' sake
                self._scheduler.remove(parent)
        now = self._clock()
        for one in chosen:
            one.sequence.receive(one.token, now)
        return list(search.sequences)
