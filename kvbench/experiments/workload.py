"""What every experiment brings: passes of requests, and how much there is to hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:  # help knows every experiment, and makes no request
    from kvbench.runners.base import ArmSetup, Pace, Request, RequestSource
    from kvbench.runs.records import RequestKey
    from kvbench.workloads.passes import Pass


class Size(NamedTuple):
    """Tokens of one request, and whose it is, as messages name it."""

    name: str
    prompt_tokens: int
    output_tokens: int


def request_key(pass_: Pass, arm: str, repeat: int, position: int, session: int | None = None, turn: int | None = None) -> RequestKey:
    """The key of the request at a position of a pass; ``session`` and ``turn`` for a workload of conversations."""
    from kvbench.runs.records import RequestKey

    name = f"{arm}-r{repeat}-p{pass_.index}-{position}"
    return RequestKey(arm, repeat, pass_.name, pass_.index, position, name, pass_.doc_ids[position], session, turn)


class Workload(Protocol):
    """The requests of a run, the same in every arm and repeat; of one with turns, what they add to the answers is."""

    @property
    def passes(self) -> Sequence[Pass]:
        """In the order in which they run. ``doc_ids`` has an entry for each request, later turns included."""

    @property
    def arms(self) -> Sequence[ArmSetup] | None:
        """What is compared, the baseline first; ``None``: the tiers that the configuration names."""

    def requests(self, arm: str, repeat: int, pass_: Pass) -> Sequence[Request] | RequestSource:
        """The requests of one pass: all of them in order, or a source where one may come after another's answer."""

    def pace(self, pass_: Pass) -> Pace | None:
        """When the requests of one pass are sent that come after no other; ``None``: the workload has no times of its own."""

    def sizes(self) -> Sequence[Size]:
        """Every distinct size of a request, later turns included, or at least the largest ones."""

    def working_set_tokens(self) -> int:
        """Distinct tokens that are read, common heads counted once."""

    def working_set_chunks(self, chunk: int) -> int:
        """Room a host tier needs, in chunks of ``chunk`` tokens, to keep every prompt and output of the run."""

    def describe(self) -> dict[str, Any]:
        """``workload`` as the manifest shows it."""
