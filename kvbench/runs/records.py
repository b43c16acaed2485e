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

from kvbench.runs.quantities import Amount, Count


@dataclass(frozen=True, slots=True)
class Stall:
    """A gap between two output tokens during which the request was preempted; the parts sum to ``total_ms``.

    ``recomputing_ms`` are the steps that rebuilt any KV, the one that gave the next token too if it did; ``first_step_ms`` is that step
    where nothing was left to rebuild.
    """

    after_token: Count
    total_ms: Amount
    waiting_ms: Amount
    restoring_ms: Amount
    recomputing_ms: Amount
    first_step_ms: Amount


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
    repeat: Count
    pass_name: str
    pass_index: Count
    position: Count
    request_id: str
    doc_id: Count
    session: Count | None = None
    turn: Count | None = None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as it was measured; a line of ``requests.jsonl``.

    ``cached_tokens_device + cached_tokens_host + computed_tokens == prompt_tokens`` wherever they are known. ``sent_s`` is ``None`` for a
    request that was never sent; ``chunk_tokens`` where the server did not say how many tokens a chunk held; ``output_digest``
    (:func:`digest`) where the output's token ids are not known.
    """

    key: RequestKey
    prompt_tokens: Count | None
    prompt_tokens_sent: Count
    output_tokens: Count | None
    cached_tokens_device: Count | None
    cached_tokens_host: Count | None
    computed_tokens: Count | None
    attribution: str | None
    restore_ms: Amount | None
    compute_ms: Amount | None
    scheduled_s: Amount
    sent_s: Amount | None
    first_token_s: Amount | None
    last_token_s: Amount | None
    end_s: Amount
    token_times_s: list[Amount]
    chunk_tokens: list[Count] | None
    preemptions: Count | None
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

    counters_before: dict[str, Count]
    counters_after: dict[str, Count]
    peak_pool_tokens: Count | None
    evicted_tokens: Count | None
    stored_tokens: Count | None
    loaded_tokens: Count | None
    cached_tokens_device: Count | None = None
    cached_tokens_host: Count | None = None
    computed_tokens: Count | None = None
    client_lags_ms: list[Amount] | None = None
    faults: list[str] = field(default_factory=list)
    peak_running: Count | None = None
    quiesce_s: Amount | None = 0.0
    counters_unread: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One pass of one arm and repeat; a line of ``passes.jsonl``.

    ``wall_s`` is first send to last token without ``quiesce_s``, ``None`` where no request has one or that is unknown.
    ``prediction`` is the simulator's for the same pass, ``None`` where nothing was predicted.
    """

    arm: str
    repeat: Count
    pass_name: str
    pass_index: Count
    requests: Count
    failed: Count
    wall_s: Amount | None
    totals: PassTotals
    prediction: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The line's object: flat, with ``pass`` for ``pass_name``."""
        line = asdict(self)
        line |= line.pop("totals") | {"prediction": line.pop("prediction")}
        return {("pass" if key == "pass_name" else key): value for key, value in line.items()}
