"""What every runner is: something that takes the requests of a pass and gives back their records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kvbench.records import PassTotals, Place, RequestRecord


@dataclass(frozen=True, slots=True)
class Request:
    """One request to send: exact prompt token ids, and how many tokens to generate (the end-of-text token is ignored)."""

    place: Place
    prompt: Sequence[int]
    output_tokens: int


class Clock:
    """The run's one clock: monotonic, in seconds, from the moment it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def __call__(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """A request is sent when one before it has ended: ``concurrency`` in flight."""

    concurrency: int


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Each request is sent at its own time, whatever became of those before it: seconds from the start of the pass, ascending."""

    times_s: Sequence[float]


Pace = ClosedLoop | OpenLoop
"""When the requests of a pass are sent."""


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """The device pool: tokens in whole blocks, and how many tokens a block holds."""

    tokens: int
    block_size: int


@dataclass(frozen=True, slots=True)
class ColdStart:
    """What one arm and repeat starts from. ``host_tokens`` ``None``: no host tier. ``folder``: where logs go."""

    arm: str
    repeat: int
    host_tokens: int | None
    folder: Path


class Runner(Protocol):
    """Executes requests on one arm, from a cold cache until it is closed."""

    def describe(self) -> dict[str, Any]:
        """What the manifest says of this arm beside its name: ``command``, the servers' command lines; ``None`` where there are none."""

    def run_pass(self, requests: Sequence[Request], pace: Pace, on_end: Callable[[RequestRecord], None]) -> PassTotals:
        """Run all requests, sent in order at the pace; call ``on_end`` once for each as it ends.

        Changes the runner's cache, which is what later passes meet. Returns only when every store has landed in its tier.
        A request that fails is a record with an error, never an exception.
        """

    def take_events(self) -> list[dict[str, object]]:
        """The events since the last call, oldest first; forgets them. Empty where the runner has none."""

    def close(self) -> None:
        """Release the cache's memory, or the server. Safe to call twice."""


class Backend(Protocol):
    """What arms are started on: a loaded model, or the means to start servers of one."""

    @property
    def nonce(self) -> str | None:
        """Makes the workload's tokens new to servers that were there before; ``None`` where every arm starts cold."""

    @property
    def vocab(self) -> int:
        """Token ids are below this."""

    @property
    def tokenizer(self) -> Path:
        """Where the model's ``tokenizer.json`` is, if it has one."""

    @property
    def bytes_per_token(self) -> int | None:
        """KV bytes a token takes; ``None`` where that is not known."""

    @property
    def capacity(self) -> DeviceCapacity:
        """The device pool of every arm."""

    @property
    def chunk_tokens(self) -> int:
        """What a host tier stores and evicts at once."""

    def profile(self, arm: str) -> str | None:
        """Name of the cache semantics of an arm; ``None`` where none is known, and nothing of it can be predicted."""

    def host_room(self, tokens: int) -> int:
        """Size of a host tier, in tokens, that keeps so many and evicts none."""

    def describe(self) -> dict[str, Any]:
        """``model`` and ``device`` as the manifest shows them, and ``weights_seed``."""

    def check(self, name: str, prompt_tokens: int, output_tokens: int) -> None:
        """Raise ``UsageError``, with the sizes, for a request that could never run; ``name`` says whose it is."""

    def check_memory(self, host_tokens: int | None) -> None:
        """Raise ``OutOfMemory`` for an arm with a host tier of this size that would not fit."""

    def warm_up(self, prompt_tokens: int) -> None:
        """Make first use of kernels and memory, with tokens outside the workload and a cache that is thrown away."""

    def start(self, arm: ColdStart, clock: Clock) -> Runner:
        """A cold runner."""

    def close(self) -> None:
        """Let go of whatever is shared by the arms. Safe to call twice."""
