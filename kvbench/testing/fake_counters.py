"""The fake server's counters, under the names and labels that vLLM 0.32 gives them (``v1/metrics/loggers.py``)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from kvbench.testing.fake_script import MODEL, Script

COUNTERS = (
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "num_preemptions",
    "prompt_tokens",
    "prompt_tokens_cached",
    "generation_tokens",
)
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
LABELLED = {
    "prompt_tokens_by_source": ("source", ("local_compute", "local_cache_hit", "external_kv_transfer")),
    "prompt_tokens_cached_by_source": ("source", ("device", "host", "p2p", "disk", "external_unspecified")),
    "request_success": ("finished_reason", ("stop", "length", "abort", "error", "repetition")),
}
"""Counters that are kept by the values of one more label. Here each is called ``name:value``."""


class Counters(Collector):
    """Numbers by name, without the prefix ``vllm:``. They count what the server did, unless a test sets them."""

    def __init__(self, script: Script) -> None:
        """The pool is the script's; what ``hides`` names is not shown, as an older server may not have it."""
        self.values: dict[str, float] = {}
        self._pool_tokens, self._block_size = script.pool_tokens, script.block_size
        self._prefix_caching = script.prefix_caching
        self._hidden = f"vllm:{script.hides}" if script.hides else None
        self._registry = CollectorRegistry(auto_describe=False)
        self.reset()
        self._registry.register(self)

    def reset(self) -> None:
        """Everything is zero, and the server's process has just started."""
        self._started = time.time()
        labelled = [f"{name}:{value}" for name, (_, values) in LABELLED.items() for value in values]
        self.values = dict.fromkeys((*COUNTERS, *GAUGES, *labelled), 0.0)

    def add(self, amounts: Mapping[str, float]) -> None:
        """Add to counters; less than nothing makes one go backwards. ``KeyError``: there is no such counter."""
        for name, amount in amounts.items():
            self.values[name] += amount

    def prompt(self, tokens: int, device: int, host: int, tier: bool, lookups: int = 1) -> None:
        """Count a prompt, of which so much was found on the device and in a tier that was asked for the rest, if there is one.

        ``lookups``: how often the tier was asked; only its own counters count each.
        """
        self.add({"prefix_cache_queries": tokens * self._prefix_caching, "prefix_cache_hits": device, "prompt_tokens": tokens})
        self.add({"prompt_tokens_cached": device + host, "prompt_tokens_cached_by_source:device": device})
        self.add({"prompt_tokens_by_source:local_cache_hit": device, "prompt_tokens_by_source:local_compute": tokens - device - host})
        if tier:
            self.add({"external_prefix_cache_queries": lookups * (tokens - device), "external_prefix_cache_hits": lookups * host})
            self.add({"prompt_tokens_by_source:external_kv_transfer": host, "prompt_tokens_cached_by_source:external_unspecified": host})

    def expose(self) -> bytes:
        """The text of ``/metrics``."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """What ``prometheus_client`` asks for."""
        return (metric for metric in self._all() if self._hidden is None or not metric.name.startswith(self._hidden))

    def _all(self) -> Iterable[Metric]:
        labels, own = ("model_name", "engine"), (MODEL, "0")
        for name in (*GAUGES, *COUNTERS):
            family = (GaugeMetricFamily if name in GAUGES else CounterMetricFamily)(f"vllm:{name}", name, labels=labels)
            family.add_metric(own, self.values[name])
            yield family
        for name, (label, values) in LABELLED.items():
            counter = CounterMetricFamily(f"vllm:{name}", name, labels=(*labels, label))
            for value in values:
                counter.add_metric((*own, value), self.values[f"{name}:{value}"])
            yield counter
        facts = {"block_size": str(self._block_size), "enable_prefix_caching": str(self._prefix_caching), "engine": "0"}
        if self._pool_tokens is not None:
            blocks = self._pool_tokens // self._block_size
            facts |= {"num_gpu_blocks": str(blocks), "kv_cache_size_tokens": str(blocks * self._block_size)}
        info = GaugeMetricFamily("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=tuple(facts))
        info.add_metric(tuple(facts.values()), 1.0)
        yield info
        yield GaugeMetricFamily("process_start_time_seconds", "Start time of the process", value=self._started)
