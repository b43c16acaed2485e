"""The beam searches under way, and what a choice does to the KV of their beams."""

from __future__ import annotations

from collections.abc import Callable

from kvbench.runners.engine.scheduling.beam_search import BeamSearch
from kvbench.runners.engine.scheduling.scheduler import Scheduler
from kvbench.runners.engine.scheduling.sequence import Sequence


class Searches:
    """All searches that have beams and are not at their end."""

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
