"""What every experiment brings: passes of requests, and how much there is to hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kvbench.runners.base import ArmSetup, Pace, Request
from kvbench.runs.records import RequestKey
from kvbench.workloads.passes import Pass


class Size(NamedTuple):
    """Tokens of one request, and whose it is, as messages name it."""

    name: str
    prompt_tokens: int
    output_tokens: int


def request_key(plan: Pass, arm: str, repeat: int, position: int) -> RequestKey:
    """Where the request at a position of a pass belongs."""
    name = f"{arm}-r{repeat}-p{plan.index}-{position}"
    return RequestKey(arm, repeat, plan.name, plan.index, position, name, plan.doc_ids[position])


class Workload(Protocol):
    """The requests of a run, the same in every arm and repeat."""

    @property
    def passes(self) -> Sequence[Pass]:
        """In the order in which they run."""

    @property
    def arms(self) -> Sequence[ArmSetup] | None:
        """What is compared, the baseline first; ``None``: the tiers that the configuration names."""

    def requests(self, arm: str, repeat: int, plan: Pass) -> Sequence[Request]:
        """The requests of one pass, in order."""

    def pace(self, plan: Pass) -> Pace | None:
        """When the requests of one pass are sent; ``None``: the workload has no times of its own."""

    def sizes(self) -> Sequence[Size]:
        """Every distinct size of a request, or at least the largest ones."""

    def working_set_tokens(self) -> int:
        """Distinct tokens that are read, common heads counted once."""

    def working_set_chunks(self, chunk: int) -> int:
        """Room a host tier needs, in chunks of ``chunk`` tokens, to keep every prompt and output of the run."""

    def describe(self) -> dict[str, Any]:
        """``workload`` as the manifest shows it."""
