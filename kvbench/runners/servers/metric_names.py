"""What a server calls what it counts. Data only: nothing here asks a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.samples import Sample


@dataclass(frozen=True, slots=True)
class ReportedPool:
    """The device pool as the server reports it, in tokens and blocks; a block that is never used for requests is counted."""

    block_size: int
    blocks: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ServerMetric:
    """A sample in ``/metrics``: its name, and the label it must have, if any. All that match are summed (engines, ranks)."""

    name: str
    label: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class MetricNames:
    """What a server calls what it counts. A metric that a server does not have is unknown, not 0.

    Attributes:
        counters: by kvbench's own names.
        gauges: ``running``, ``waiting`` (requests) and ``kv_usage`` (0 to 1), as far as there are any.
        pool: finds the device pool among the samples; ``None``: the server has none, or does not say.
        start: the metric that says when the process started, seconds since the epoch.
    """

    counters: Mapping[str, ServerMetric]
    gauges: Mapping[str, ServerMetric] = field(default_factory=dict)
    pool: Callable[[Sequence[Sample]], ReportedPool | None] = lambda _: None
    start: str = "process_start_time_seconds"
