"""What a server counts, and what it calls that: read from ``/metrics``, as plain numbers, for differences between two moments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kvbench.errors import RunFailed
from kvbench.runners.base import DeviceCapacity
from kvbench.runners.http.admin_api import call


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
    pool: Callable[[Sequence[Sample]], DeviceCapacity | None] = lambda _: None
    start: str = "process_start_time_seconds"


@dataclass(frozen=True, slots=True)
class Scrape:
    """One reading of a server's ``/metrics``."""

    counters: dict[str, int]
    """By the names of :class:`MetricNames`; a metric that the server does not have is not in here."""

    gauges: dict[str, float]
    """``running``, ``waiting`` (requests) and ``kv_usage`` (0 to 1)."""

    capacity: DeviceCapacity | None
    """The device pool, a block that is never used for requests included; ``None`` where the server does not say."""

    started: float | None
    """When the server's process started, seconds since the epoch: another value is another process. ``None`` where it does not say."""


def scrape(client: httpx.Client, url: str, names: MetricNames) -> Scrape:
    """Read ``url``/metrics of a server; ``RunFailed`` where it does not answer, or not with metrics."""
    return parse(call(client, "GET", f"{url}/metrics").text, names)


def parse(text: str, names: MetricNames) -> Scrape:
    """The reading that a text in Prometheus' format is; ``RunFailed`` where it is no such text."""
    try:
        read = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except ValueError as error:
        raise RunFailed(f"/metrics cannot be read ({error}); is this a vLLM server?") from None
    samples = [sample for sample in read if math.isfinite(sample.value)]  # NaN is an unknown, too
    return Scrape(
        counters={name: round(total) for name, total in _totals(samples, names.counters).items()},
        gauges=_totals(samples, names.gauges),
        capacity=names.pool(samples),
        started=next((sample.value for sample in samples if sample.name == names.start), None),
    )


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What was counted in between, by name; below 0 where a counter went backwards, which is no reading to be trusted.

    A counter that appears only in ``after`` began at 0, as LMCache's do; one that has gone is left out: it is unknown.
    """
    return {name: value - before.get(name, 0) for name, value in after.items()}


def _totals(samples: list[Sample], metrics: Mapping[str, ServerMetric]) -> dict[str, float]:
    """The sum of the samples that each metric names; a metric without a sample is left out."""
    totals: dict[str, float] = {}
    for name, metric in metrics.items():
        values = [item.value for item in samples if item.name == metric.name and item.labels.get(metric.label, "") == metric.value]
        if values:
            totals[name] = sum(values)
    return totals
