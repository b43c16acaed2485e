"""What a run writes down: one record a request, one a pass. Raw values only; statistics are computed later.

Unknown is ``None``, never 0. Times are seconds on one monotonic clock that starts with the run, unless a name ends in ``_ms``.
The fields are the format ``kvbench.run/1``, whose history stands in :mod:`kvbench.runfolder`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Stall:
    """A gap between two output tokens during which the request was preempted; the parts sum to ``total_ms``."""

    after_token: int
    total_ms: float
    waiting_ms: float
    restoring_ms: float
    recomputing_ms: float


@dataclass(frozen=True, slots=True)
class RequestError:
    """Why a request failed: a short kind, the message, and the HTTP status where there was one."""

    kind: str
    message: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request belongs in a run. ``doc_id`` counts documents in the order in which they are first read."""

    arm: str
    repeat: int
    pass_name: str
    pass_index: int
    position: int
    request_id: str
    doc_id: int


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as it was measured; a line of ``requests.jsonl``.

    ``cached_tokens_device + cached_tokens_host + computed_tokens == prompt_tokens`` wherever they are known.
    """

    place: Place
    prompt_tokens: int | None
    prompt_tokens_sent: int
    output_tokens: int
    cached_tokens_device: int | None
    cached_tokens_host: int | None
    computed_tokens: int | None
    attribution: str | None
    restore_ms: float | None
    compute_ms: float | None
    scheduled_s: float
    sent_s: float
    first_token_s: float | None
    last_token_s: float | None
    end_s: float
    token_times_s: list[float]
    chunk_tokens: list[int]
    preemptions: int | None
    stalls: list[Stall] = field(default_factory=list)
    error: RequestError | None = None

    @property
    def ttft_ms(self) -> float | None:
        """Time to first token in milliseconds: first non-empty token − sent. ``None`` without a token."""
        return None if self.first_token_s is None else (self.first_token_s - self.sent_s) * 1e3

    def to_json(self) -> dict[str, Any]:
        """The line's object: the place's fields first and flat, ``pass`` for ``pass_name``, then the rest and ``ttft_ms``."""
        line = asdict(self)
        place = line.pop("place")
        place = {("pass" if key == "pass_name" else key): value for key, value in place.items()}
        return {**place, **line, "ttft_ms": self.ttft_ms}


@dataclass(frozen=True, slots=True)
class PassTotals:
    """What a runner counted in one pass. Counters are cumulative since its cold start and only ever grow; a pass is their difference."""

    counters_before: dict[str, int]
    counters_after: dict[str, int]
    peak_pool_tokens: int | None
    evicted_tokens: int | None
    stored_tokens: int | None
    loaded_tokens: int | None


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One pass of one arm and repeat; a line of ``passes.jsonl``.

    ``wall_s`` is first send to last token. ``prediction`` is the simulator's for the same pass, ``None`` where nothing was predicted.
    """

    arm: str
    repeat: int
    pass_name: str
    pass_index: int
    requests: int
    failed: int
    wall_s: float
    totals: PassTotals
    prediction: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The line's object: flat, with ``pass`` for ``pass_name``."""
        line = asdict(self)
        line |= line.pop("totals") | {"prediction": line.pop("prediction")}
        return {("pass" if key == "pass_name" else key): value for key, value in line.items()}
