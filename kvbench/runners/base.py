"""What every runner is: something that takes the requests of a pass and gives back their records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kvbench.runs.records import PassTotals, RequestKey, RequestRecord

LOG_IS = "; log: "
"""Between what is waited for and where its log is, in what a watcher is told."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to send: exact prompt token ids, and how many tokens to generate (the end-of-text token is ignored).

    ``temperature`` 0 is greedy; else tokens are sampled with ``seed``. ``samples`` above 1: so many answers, each with a seed of its own;
    ``beams`` above 0: a beam search of that width. Each answer is a record of its own, its id the request's with ``/NUMBER`` behind it.
    """

    key: RequestKey
    prompt: Sequence[int]
    output_tokens: int
    temperature: float = 0.0
    seed: int = 0
    samples: int = 1
    beams: int = 0


class FollowUp(NamedTuple):
    """A request that comes after another, and how long after that one's last token, in seconds."""

    request: Request
    pause_s: float


class RequestSource(Protocol):
    """The requests of one pass, some of which may come after others.

    A source is asked, and keeps nothing: the same end gives the same requests. So the prediction and the runner walk it each by itself.
    """

    @property
    def count(self) -> int:
        """Requests in all, if none fails."""

    @property
    def first(self) -> Sequence[Request]:
        """Those that come after no other, in the order of sending; in a pass there is at least one."""

    @property
    def needs_answers(self) -> bool:
        """Whether a later prompt holds an earlier answer. The ids of an answer are then asked for, and a request without them fails."""

    def after(self, request: Request, answer: Sequence[int] | None) -> Sequence[FollowUp]:
        """The requests that come after this one, which has ended; none after most.

        ``answer``: its output's token ids, of several answers the first one's. ``None``: it failed, or they are not known.
        """


class ListSource:
    """A :class:`RequestSource` of requests none of which comes after another."""

    needs_answers = False

    def __init__(self, requests: Sequence[Request]) -> None:
        self.first = requests

    @property
    def count(self) -> int:
        """All of them."""
        return len(self.first)

    def after(self, request: Request, answer: Sequence[int] | None) -> Sequence[FollowUp]:
        """None."""
        return ()


def as_source(requests: Sequence[Request] | RequestSource) -> RequestSource:
    """A list as a source; a source as it is."""
    return ListSource(requests) if isinstance(requests, Sequence) else requests


class Clock:
    """The run's one clock: monotonic, in seconds, from the moment it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def __call__(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """A request is sent when one before it has ended: at most ``concurrency`` in flight.

    Of those that may be sent, one that comes after another goes before one that comes after none.
    """

    concurrency: int


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Each request that comes after no other has a time of its own, in seconds from the start of the pass, ascending.

    It is sent then, whatever became of those before it; one that comes after another is sent when its pause is over.
    """

    times_s: Sequence[float]


Pace = ClosedLoop | OpenLoop
"""When the requests of a pass are sent."""


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """The device pool: tokens in whole blocks, and how many tokens a block holds."""

    tokens: int
    block_size: int


@dataclass(frozen=True, slots=True)
class ArmSetup:
    """What an arm is: a tier, or what an engine does with its blocks. ``None`` is the run's own size; sizes in tokens.

    ``tier`` is what stands beside the pool, and ``host_tokens`` its size (``None``: there is none, or it is unknown). ``swap_tokens``
    ``None``: who is preempted is recomputed. ``allocation`` and ``victim`` are names of policies; ``reserve_tokens`` overrides the first:
    what is kept for every request. ``device_policy`` and ``host_policy`` are names of eviction policies, ``None``: the runner's own;
    a server has its own always. ``contiguous``: a request's slots are one run. ``sample_usage``: each step says how slots are used.
    """

    name: str
    tier: str = "none"
    host_tokens: int | None = None
    device_tokens: int | None = None
    block_size: int | None = None
    swap_tokens: int | None = None
    allocation: str = "on-demand"
    victim: str = "newest"
    reserve_tokens: int | None = None
    device_policy: str | None = None
    host_policy: str | None = None
    contiguous: bool = False
    copy_on_write: bool = True
    prefix_cache: bool = True
    sample_usage: bool = False

    def differences(self) -> dict[str, Any]:
        """What of it is not as in a plain arm, for the manifest."""
        plain = ArmSetup(self.name)
        return {item.name: value for item in fields(self) if (value := getattr(self, item.name)) != getattr(plain, item.name)}


class Runner(Protocol):
    """Executes requests on one arm, from a cold cache until it is closed."""

    def describe(self) -> dict[str, Any]:
        """What the manifest says of this arm beside its name: ``command``, the servers' command lines; ``None`` where there are none."""
        return {"command": None}

    def run_pass(self, source: RequestSource, pace: Pace, on_end: Callable[[RequestRecord], None]) -> PassTotals:
        """Run all requests that the source gives, sent in order at the pace; call ``on_end`` once for each answer as it ends.

        A request that comes after another is sent when that one's last token is there, and the pause over, and the pace allows it.

        Changes the runner's cache, which is what later passes meet. Returns only when every store has landed in its tier.
        A request that fails is a record with an error, never an exception.
        """

    def take_events(self) -> list[dict[str, object]]:
        """The events since the last call, oldest first; forgets them. Empty where the runner has none."""
        return []

    def close(self) -> None:
        """Release the cache's memory, or the server. Safe to call twice."""


class Backend(Protocol):
    """What arms are started on: a loaded model, or the means to start servers of one."""

    nonce: str | None
    """Makes the workload's tokens new to servers that were there before; ``None`` where every arm starts cold."""
    tokenizer: Path
    """Where the model's ``tokenizer.json`` is, if it has one."""
    capacity: DeviceCapacity
    """The device pool of every arm."""
    chunk_tokens: int
    """What a host tier stores and evicts at once."""

    @property
    def vocab(self) -> int:
        """Token ids are below this."""

    @property
    def bytes_per_token(self) -> int | None:
        """KV bytes a token takes; ``None`` where that is not known."""

    def profile(self, arm: str) -> str | None:
        """Name of the cache semantics of an arm; ``None`` where none is known, and nothing of it can be predicted."""

    def host_room(self, tokens: int) -> int:
        """Size of a host tier, in tokens, that keeps so many and evicts none."""

    def describe(self) -> dict[str, Any]:
        """``model`` and ``device`` as the manifest shows them, and ``weights_seed``."""

    def check(self, name: str, prompt_tokens: int, output_tokens: int) -> None:
        """Raise ``UsageError``, with the sizes, for a request that could never run; ``name`` says whose it is."""

    def check_memory(self, arm: ArmSetup) -> None:
        """Raise ``OutOfMemory`` for an arm that would not fit the memory there is."""

    def warm_up(self, prompt_tokens: int) -> None:
        """Make first use of kernels and memory, with tokens outside the workload and a cache that is thrown away."""

    def start(self, arm: ArmSetup, repeat: int, clock: Clock) -> Runner:
        """A cold runner."""

    def close(self) -> None:
        """Let go of whatever is shared by the arms. Safe to call twice."""
