"""What a run writes down: one record a request, one a pass. Raw values only; statistics are computed later.

Unknown is ``None``, never 0. Times are seconds on one monotonic clock that starts with the run, unless a name ends in ``_ms``.
The fields are the format ``kvbench.run/1``, whose history stands in :mod:`kvbench.runs.run_folder`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Stall:
    """A gap between two output tokens during which the request was preempted; the parts sum to ``total_ms``.

    ``recomputing_ms`` are the steps that rebuilt any KV, the one that gave the next token too if it did; ``first_step_ms`` is that step
    where nothing was left to rebuild.
    """

    after_token: int
    total_ms: float
    waiting_ms: float
    restoring_ms: float
    recomputing_ms: float
    first_step_ms: float


def digest(token_ids: Sequence[int]) -> str:
    """What tells outputs apart: the first 16 hex digits of SHA-256 over the token ids, each as 4 bytes, the lowest first."""
    return hashlib.sha256(struct.pack(f"<{len(token_ids)}I", *token_ids)).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class RequestError:
    """Why a request failed: a short kind, the message, and the HTTP status where there was one."""

    kind: str
    message: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Which request of a run it is. ``doc_id`` counts documents in the order in which they are first read.

    ``session`` counts the conversations of a pass, and ``turn`` the requests of one, from 0; ``None`` where the workload has none.
    """

    arm: str
    repeat: int
    pass_name: str
    pass_index: int
    position: int
    request_id: str
    doc_id: int
    session: int | None = None
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as it was measured; a line of ``requests.jsonl``.

    ``cached_tokens_device + cached_tokens_host + computed_tokens == prompt_tokens`` wherever they are known. ``sent_s`` is ``None`` for a
    request that was never sent; ``chunk_tokens`` where the server did not say how many tokens a chunk held; ``output_digest``
    (:func:`digest`) where the output's token ids are not known.
    """

    key: RequestKey
    prompt_tokens: int | None
    prompt_tokens_sent: int
    output_tokens: int | None
    cached_tokens_device: int | None
    cached_tokens_host: int | None
    computed_tokens: int | None
    attribution: str | None
    restore_ms: float | None
    compute_ms: float | None
    scheduled_s: float
    sent_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    end_s: float
    token_times_s: list[float]
    chunk_tokens: list[int] | None
    preemptions: int | None
    stalls: list[Stall] = field(default_factory=list)
    error: RequestError | None = None
    output_digest: str | None = None

    @property
    def ttft_ms(self) -> float | None:
        """Time to first token in milliseconds: first non-empty token − sent. ``None`` without a token."""
        return None if self.first_token_s is None or self.sent_s is None else (self.first_token_s - self.sent_s) * 1e3

    def to_json(self) -> dict[str, Any]:
        """The line's object: the key's fields first and flat, ``pass`` for ``pass_name``, then the rest and ``ttft_ms``.

        ``session`` and ``turn`` are there only where there are any.

        Not by ``asdict``, which copies every time one by one: this runs between two reads of a socket.
        """
        key = {("pass" if name == "pass_name" else name): value for name, value in asdict(self.key).items()}
        key = {name: value for name, value in key.items() if value is not None}
        line = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "key"}
        line["stalls"] = [asdict(stall) for stall in self.stalls]
        line["error"] = None if self.error is None else asdict(self.error)
        return {**key, **line, "ttft_ms": self.ttft_ms}


@dataclass(frozen=True, slots=True)
class PassTotals:
    """What a runner counted in one pass. Counters are cumulative since its cold start and only ever grow; a pass is their difference.

    ``peak_running``: the most requests that ran in one step. ``cached_tokens_device``, ``cached_tokens_host`` and ``computed_tokens`` are
    prompt tokens of the pass, for runners that cannot say it request by request. ``client_lags_ms`` is by how much a client's own event
    loop was late, where it was. ``faults`` is what the runner saw that speaks against the pass, in words. ``quiesce_s`` is how long, within
    the pass, nothing was in flight because counters were read and stores awaited; ``None``: unknown.
    ``counters_unread`` is why looks at the counters failed, one each; what these would have told is unknown.
    """

    counters_before: dict[str, int]
    counters_after: dict[str, int]
    peak_pool_tokens: int | None
    evicted_tokens: int | None
    stored_tokens: int | None
    loaded_tokens: int | None
    cached_tokens_device: int | None = None
    cached_tokens_host: int | None = None
    computed_tokens: int | None = None
    client_lags_ms: list[float] | None = None
    faults: list[str] = field(default_factory=list)
    peak_running: int | None = None
    quiesce_s: float | None = 0.0
    counters_unread: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One pass of one arm and repeat; a line of ``passes.jsonl``.

    ``wall_s`` is first send to last token without ``quiesce_s``, ``None`` where no request has one or that is unknown.
    ``prediction`` is the simulator's for the same pass, ``None`` where nothing was predicted.
    """

    arm: str
    repeat: int
    pass_name: str
    pass_index: int
    requests: int
    failed: int
    wall_s: float | None
    totals: PassTotals
    prediction: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The line's object: flat, with ``pass`` for ``pass_name``."""
        line = asdict(self)
        line |= line.pop("totals") | {"prediction": line.pop("prediction")}
        return {("pass" if key == "pass_name" else key): value for key, value in line.items()}
