"""What a server counts: read from ``/metrics``, as plain numbers, for differences between two moments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kvbench.config.secrets import mask_login
from kvbench.errors import RunFailed
from kvbench.runners.base import DeviceCapacity
from kvbench.runners.http.admin_api import call, get_object
from kvbench.runners.vllm.metric_names import CACHE_CONFIG, LMCACHE_COUNTERS, PROCESS_START, VLLM_COUNTERS, VLLM_GAUGES, ServerMetric


@dataclass(frozen=True, slots=True)
class ReportedPool:
    """The device pool as the server reports it, in tokens and blocks; block 0, which vLLM never uses for requests, is counted."""

    block_size: int
    blocks: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Scrape:
    """One reading of a server's ``/metrics``."""

    counters: dict[str, int]
    """By the names of :mod:`names`; a metric that the server does not have is not in here."""

    gauges: dict[str, float]
    """``running``, ``waiting`` (requests) and ``kv_usage`` (0 to 1)."""

    capacity: ReportedPool | None
    """``None`` where the server does not say."""

    started: float | None
    """When the server's process started, seconds since the epoch: another value is another process. ``None`` where it does not say."""


@dataclass(frozen=True, slots=True)
class TokensByTier:
    """Prompt tokens by where they came from; ``computed`` is what the others leave, below 0 where a hit was counted twice."""

    device: int
    host: int
    computed: int


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What ``/version`` and ``/v1/models`` say; ``None`` is unknown."""

    name: str
    root: str | None
    """The folder or the hub's name that it was loaded from."""

    max_tokens: int | None
    """Longest prompt and output together."""

    version: str | None
    """Of vLLM."""


def scrape(client: httpx.Client, url: str) -> Scrape:
    """Read ``url``/metrics of a vLLM server, or of an LMCache server's HTTP port.

    Raises:
        RunFailed: it does not answer, or not with metrics.
    """
    return parse(call(client, "GET", f"{url}/metrics").text)


def parse(text: str) -> Scrape:
    """The reading that a text in Prometheus' format is.

    Raises:
        RunFailed: it is no such text.
    """
    try:
        read = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except ValueError as error:
        raise RunFailed(f"/metrics cannot be read ({error}); is this a vLLM server?") from None
    samples = [sample for sample in read if math.isfinite(sample.value)]  # NaN is an unknown, too
    return Scrape(
        counters={name: round(total) for name, total in _totals(samples, {**VLLM_COUNTERS, **LMCACHE_COUNTERS}).items()},
        gauges=_totals(samples, VLLM_GAUGES),
        capacity=_capacity(samples),
        started=next((sample.value for sample in samples if sample.name == PROCESS_START), None),
    )


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What was counted in between, by name; below 0 where a counter went backwards, which is no reading to be trusted.

    A counter that appears only in ``after`` began at 0, as LMCache's do; one that has gone is left out: it is unknown.
    """
    return {name: value - before.get(name, 0) for name, value in after.items()}


def tokens_by_tier(grown: Mapping[str, int], has_tier: bool) -> TokensByTier | None:
    """What the hits say of the prompts that were counted in between; :func:`contradiction` says whether to believe it.

    ``None`` where they do not say: a counter is missing or went backwards, or a preempted request may have been looked up again.
    """
    device, prompt = grown.get("prefix_hits"), grown.get("prompt_tokens")
    host = grown.get("external_hits", None if has_tier else 0)
    if device is None or host is None or prompt is None or min(device, host, prompt) < 0 or grown.get("preemptions") != 0:
        return None
    return TokensByTier(device, host, prompt - device - host)


def contradiction(tokens: TokensByTier, grown: Mapping[str, int]) -> str | None:
    """How the hits contradict the prompt tokens, which vLLM counts by source as well, once each; ``None`` where they do not.

    A lookup that is retried and counted again does (vllm#43736).
    """
    found = tokens.device, tokens.host, tokens.computed
    told = grown.get("prompt_tokens_device"), grown.get("prompt_tokens_external"), grown.get("prompt_tokens_computed")
    if tokens.computed >= 0 and all(number in (None, own) for number, own in zip(told, found, strict=True)):
        return None
    by_hits, by_source = (", ".join("unknown" if number is None else f"{number:,}" for number in numbers) for numbers in (found, told))
    return f"the server's counters contradict each other: device, host, computed are {by_hits} by hits, {by_source} by prompt tokens"


def served_model(client: httpx.Client, url: str) -> ServedModel:
    """The model that the server serves, and its version.

    Raises:
        RunFailed: it does not answer, or serves no model.
    """
    try:
        model = get_object(client, f"{url}/v1/models")["data"][0]
        name = str(model["id"])
    except (LookupError, TypeError):
        raise RunFailed(f"{mask_login(url)}/v1/models names no model; is this a vLLM server?") from None
    try:
        version = get_object(client, f"{url}/version")["version"]
    except (RunFailed, LookupError):
        version = None
    root, longest = model.get("root"), model.get("max_model_len")  # other servers than vLLM may mean something else by them
    return ServedModel(
        name,
        root if isinstance(root, str) else None,
        longest if isinstance(longest, int) else None,
        version if isinstance(version, str) else None,
    )


def read_pool(http: httpx.Client, url: str) -> DeviceCapacity:
    """The pool that a server reports.

    Raises:
        RunFailed: it does not say.
    """
    found = scrape(http, url).capacity
    if found is None:
        raise RunFailed(f"{mask_login(url)}/metrics does not tell the size of the pool (vllm:cache_config_info); is this a vLLM server?")
    return DeviceCapacity(found.blocks * found.block_size, found.block_size)


def _totals(samples: list[Sample], metrics: Mapping[str, ServerMetric]) -> dict[str, float]:
    """The sum of the samples that each metric names; a metric without a sample is left out."""
    totals: dict[str, float] = {}
    for name, metric in metrics.items():
        values = [item.value for item in samples if item.name == metric.name and item.labels.get(metric.label, "") == metric.value]
        if values:
            totals[name] = sum(values)
    return totals


def _capacity(samples: list[Sample]) -> ReportedPool | None:
    labels = next((sample.labels for sample in samples if sample.name == CACHE_CONFIG), {})
    try:
        block_size, blocks = int(labels["block_size"]), int(labels["num_gpu_blocks"])
    except (KeyError, ValueError):
        return None
    tokens = labels.get("kv_cache_size_tokens", "")
    return ReportedPool(block_size, blocks, int(tokens) if tokens.isdigit() else blocks * block_size)
