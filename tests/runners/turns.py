"""A workload of conversations, as a room of an experiment would have it: the second prompt is the first one, its answer, and some more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kvbench.experiments.cyclic.experiment import CyclicExperiment
from kvbench.experiments.cyclic.options import CyclicOptions
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.registry import register, unregister
from kvbench.experiments.workload import Size, request_key
from kvbench.runners.base import FollowUp, Pace, Request
from kvbench.workloads.passes import Pass

PROMPT, OUTPUT, ADDED = 10, 8, 5
SECOND = PROMPT + OUTPUT + ADDED


@dataclass(frozen=True)
class Talks:
    """A source of so many sessions of two turns. ``given``: the follow-ups it gave, for tests."""

    plan: Pass
    sessions: int
    pause_s: float = 0.0
    vocab: int = 60
    arm: str = "none"
    repeat: int = 0
    needs_answers: bool = True
    given: list[Request] = field(default_factory=list)

    @property
    def count(self) -> int:
        return 2 * self.sessions

    @property
    def first(self) -> list[Request]:
        return [Request(self._key(session, 0), self._drawn(session, PROMPT), OUTPUT) for session in range(self.sessions)]

    def given_of(self, session: int) -> Request:
        return next(request for request in self.given if request.key.session == session)

    def after(self, request: Request, answer: Sequence[int] | None) -> list[FollowUp]:
        session, turn = request.key.session, request.key.turn
        if session is None or turn != 0 or answer is None:
            return []
        prompt = [*request.prompt, *answer, *self._drawn(session + 500, ADDED)]
        self.given.append(Request(self._key(session, 1), prompt, OUTPUT))
        return [FollowUp(self.given[-1], self.pause_s)]

    def _key(self, session: int, turn: int) -> Any:
        return request_key(self.plan, self.arm, self.repeat, turn * self.sessions + session, session, turn)

    def _drawn(self, start: int, count: int) -> list[int]:
        return [(start * 37 + number * 11 + start % 7) % self.vocab for number in range(count)]


def talks(sessions: int, pause_s: float = 0.0) -> Talks:
    return Talks(Pass("talk", 0, [*range(sessions)] * 2), sessions, pause_s)


@dataclass(frozen=True)
class TalkWorkload:
    """Two passes of the same conversations."""

    vocab: int
    sessions: int = 3
    arms = None

    @property
    def passes(self) -> list[Pass]:
        return [Pass("talk", index, [*range(self.sessions)] * 2) for index in range(2)]

    def requests(self, arm: str, repeat: int, plan: Pass) -> Talks:
        return replace(talks(self.sessions), plan=plan, vocab=self.vocab, arm=arm, repeat=repeat)

    def pace(self, plan: Pass) -> Pace | None:
        return None

    def sizes(self) -> list[Size]:
        return [Size("the second turn", SECOND, OUTPUT)]

    def working_set_tokens(self) -> int:
        return self.sessions * (SECOND + OUTPUT - 1)

    def working_set_chunks(self, chunk: int) -> int:
        return self.sessions * -(-(SECOND + OUTPUT - 1) // chunk)

    def describe(self) -> dict[str, Any]:
        return {"documents": self.sessions, "requests_per_pass": 2 * self.sessions}


class TalkExperiment(CyclicExperiment):
    name = "talk"
    sentence = "Conversations of two turns."
    order = 99

    def make_workload(self, config: CyclicOptions, facts: RunnerFacts) -> Any:
        return TalkWorkload(facts.vocab)


@contextmanager
def talking() -> Iterator[None]:
    """There is an experiment ``talk``."""
    register(TalkExperiment())
    try:
        yield
    finally:
        unregister("talk")
