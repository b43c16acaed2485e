"""The lines of a run folder as types: the fields of the records, flat, as ``to_json`` of each writes them, with what each field means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any, NotRequired, get_type_hints

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kvbench.runs.quantities import Amount, Count
from kvbench.runs.records import PassRecord, PassTotals, RequestError, RequestKey, RequestRecord, Stall

ADDED = {
    "Stall": ("first_step_ms",),
    "Request": ("output_digest", "session", "turn"),
    "Pass": (
        "cached_tokens_device",
        "cached_tokens_host",
        "computed_tokens",
        "client_lags_ms",
        "faults",
        "peak_running",
        "quiesce_s",
        "counters_unread",
    ),
}
"""Fields that the first runs of the format do not have, or that only some runs have."""

_KEY = {
    "arm": "Name of the arm.",
    "repeat": "Number of the repeat, from 0.",
    "pass": "Name of the pass.",
    "pass_index": "Number of the pass within its repeat, from 0.",
}
_REQUEST = _KEY | {
    "position": "Place of the request in its pass, from 0.",
    "request_id": "Unique in the run.",
    "doc_id": "Number of the document, counted in the order in which documents are first read.",
    "session": "Number of the conversation in the pass; only in runs that have conversations.",
    "turn": "Number of the request in its conversation, from 0; only in runs that have conversations.",
    "prompt_tokens": "Tokens of the prompt, as the server counted them.",
    "prompt_tokens_sent": "Tokens of the prompt that was sent.",
    "output_tokens": "Tokens that were generated.",
    "cached_tokens_device": "Prompt tokens found in the device pool.",
    "cached_tokens_host": "Prompt tokens loaded from the tier beside it.",
    "computed_tokens": "Prompt tokens computed by prefill. Where all three are known, they sum to the prompt.",
    "attribution": "Who told the tokens by tier: the engine, the server's counters, or its usage report.",
    "restore_ms": "How long loading from the host tier took, in ms.",
    "compute_ms": "How long prefill took, in ms.",
    "scheduled_s": "When the request was to be sent.",
    "sent_s": "When it was sent; null: never.",
    "first_token_s": "When its first token came.",
    "last_token_s": "When its last token came.",
    "end_s": "When it ended.",
    "token_times_s": "When each chunk of the answer came.",
    "chunk_tokens": "Tokens in each of these chunks; null where the server did not say.",
    "preemptions": "How often it was preempted.",
    "stalls": "The gaps between its tokens during which it was preempted.",
    "error": "Why it failed; null: it did not.",
    "output_digest": "First 16 hex digits of SHA-256 over the output's token ids, 4 bytes each, lowest first; null: ids unknown.",
    "ttft_ms": "Time to first token in ms: first_token_s − sent_s.",
}
_PASS = _KEY | {
    "requests": "Requests that ended, failed ones too.",
    "failed": "Requests that failed.",
    "wall_s": "Seconds from the first send to the last token, without quiesce_s; null where no request has one, or that is unknown.",
    "counters_before": "What the engine or the server had counted before the pass, by name; counters only grow.",
    "counters_after": "The same after the pass.",
    "peak_pool_tokens": "Most tokens that the device pool held.",
    "evicted_tokens": "Tokens evicted from the device pool.",
    "stored_tokens": "Tokens stored in the host tier.",
    "loaded_tokens": "Tokens loaded from the host tier.",
    "cached_tokens_device": "Prompt tokens of the pass found in the device pool, where they are not known request by request.",
    "cached_tokens_host": "The same of the tier beside it.",
    "computed_tokens": "The same of prefill.",
    "client_lags_ms": "By how much the client's own event loop was late, in ms, each time it was.",
    "faults": "What speaks against the pass, in words.",
    "peak_running": "Most requests that ran in one step.",
    "quiesce_s": "Seconds within the pass in which nothing ran: kvbench read counters and waited for stores. null: unknown.",
    "counters_unread": "Why looks at the server's counters failed, one each; what these would have told is unknown.",
    "prediction": "What the simulator predicted for the pass; null where nothing was predicted.",
}


@with_config(use_attribute_docstrings=True)
class PredictionRates(TypedDict):
    """Rates that turn tokens into times."""

    prefill: Amount | None
    """Prompt tokens computed per second."""
    restore: Amount | None
    """Tokens loaded from the host tier per second."""
    overhead_ms: Amount
    """What a request takes beside, in ms."""


@with_config(use_attribute_docstrings=True)
class PassPrediction(TypedDict):
    """What the simulator predicted for one pass, in prompt tokens."""

    profile: str
    """Whose rules were simulated."""
    device: Count
    """Tokens found in the device pool."""
    host: Count
    """Tokens loaded from the host tier."""
    computed: Count
    """Tokens computed."""
    requests: list[tuple[Count, Count, Count]]
    """Device, host and computed tokens of each request, by its position."""
    ttft_ms: list[Amount | None]
    """Predicted time to first token of each request, in ms; null where rates are not known."""
    exact: bool
    """Whether the prediction is exact, so that a difference is a fault; else it is an estimate."""
    rates: PredictionRates | None
    """What the times were predicted with."""


def _flat(*records: Any) -> dict[str, Any]:
    """The fields of records with their types, ``pass`` for ``pass_name``."""
    hints = {item.name: get_type_hints(record, include_extras=True)[item.name] for record in records for item in fields(record)}
    return {("pass" if name == "pass_name" else name): kind for name, kind in hints.items() if name not in ("key", "totals")}


def _described(kinds: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Each field with its text."""
    return ((name, Annotated[kind, Field(description=texts[name])]) for name, kind in kinds.items())


def _plain(record: type) -> Any:
    """A record within a line, as the object that it is there."""
    kinds = {name: NotRequired[kind] if name in ADDED.get(record.__name__, ()) else kind for name, kind in _flat(record).items()}
    found = TypedDict(record.__name__, kinds)  # type: ignore[misc]
    found.__doc__ = record.__doc__
    return found


def _request_kinds() -> dict[str, Any]:
    kinds = _flat(RequestKey, RequestRecord) | {"session": Count, "turn": Count, "ttft_ms": Amount | None}  # left out where they are None
    kinds |= {"stalls": list[_plain(Stall)], "error": _plain(RequestError) | None}  # type: ignore[misc]
    return {name: NotRequired[kind] if name in ADDED["Request"] else kind for name, kind in _described(kinds, _REQUEST)}


def _pass_kinds() -> dict[str, Any]:
    kinds = _flat(PassRecord, PassTotals) | {"prediction": PassPrediction | None}
    return {name: NotRequired[kind] if name in ADDED["Pass"] else kind for name, kind in _described(kinds, _PASS)}


REQUEST = TypedDict("Request", _request_kinds())  # type: ignore[misc]
REQUEST.__doc__ = "A request that ended. Times are seconds on one monotonic clock that starts with the run; null is unknown, never 0."
PASS = TypedDict("Pass", _pass_kinds())  # type: ignore[misc]
PASS.__doc__ = "A pass of one arm and repeat that was finished."
