"""What the engine writes down of what it does: the events, a line each of ``events.jsonl``."""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from kvbench.runs.quantities import Amount, Count

EventName = Literal[
    "admit", "load", "store", "evict", "preempt", "swap full", "swap out", "resume", "swap in", "swap in stopped", "catch up",
    "fork", "fork waits", "copy", "cancel", "finish", "usage",
]  # fmt: skip


@with_config(use_attribute_docstrings=True)
class EngineEvent(TypedDict):
    """One thing that the engine did; which of the optional fields an event has follows from its name."""

    event: EventName
    """What happened."""
    step: Count
    """Number of the engine's step, counted from its cold start."""
    time_s: Amount
    """When, in seconds on the run's clock."""
    request_id: NotRequired[str]
    """The request it happened to; evict and usage have none."""
    device: NotRequired[Count]
    """Tokens: admit, resume: found in the device pool; evict: evicted from it."""
    host: NotRequired[Count]
    """Tokens: admit, resume: found in the host tier; evict: evicted from it."""
    swap: NotRequired[Count]
    """Tokens that a resume finds in the swap space."""
    tokens: NotRequired[Count]
    """Tokens that were stored, loaded, swapped or recomputed; preempt: that had KV; finish, cancel: that were generated."""
    ms: NotRequired[Amount]
    """How long it took, in milliseconds."""
    bytes: NotRequired[Count]
    """Bytes copied by a swap, in whole blocks."""
    blocks: NotRequired[Count]
    """Blocks copied because several sequences shared them."""
    parent: NotRequired[str]
    """The sequence that a fork goes on from."""
    slots: NotRequired[Count]
    """Slots that a request held when it finished."""
    used: NotRequired[Count]
    """Slots that hold a token's KV: of a request that finished, or of all running ones."""
    reserved: NotRequired[Count]
    """Slots reserved by the running requests."""
    unneeded: NotRequired[Count]
    """Slots reserved that no request will come to use."""
    free: NotRequired[Count]
    """Slots that are free."""
    room: NotRequired[Count]
    """The most free slots that one request could be given."""
    running: NotRequired[Count]
    """Requests that run."""
    waiting: NotRequired[Count]
    """Requests in the queue."""
    needed: NotRequired[Count | None]
    """Slots that the first request in the queue needs; null where none waits."""
