"""vLLM: what it calls what it counts, what its counters say of a prompt, and how it is asked and reset. Read from vLLM 0.32.0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import httpx
from prometheus_client.samples import Sample

from kvbench.config.secrets import mask_login
from kvbench.errors import RunFailed
from kvbench.runners.base import DeviceCapacity
from kvbench.runners.http.admin_api import call_for_object
from kvbench.runners.servers.counters import MetricNames, ServerMetric
from kvbench.runners.servers.kinds.kind import ServedModel, ServerKind, TokensByTier

CACHE_CONFIG = "vllm:cache_config_info"
"""A gauge whose labels are the cache's configuration."""


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


def was_alone(grown: Mapping[str, int], prompt_tokens: int) -> bool:
    """Whether one request finished, and all that was counted and looked up is its prompt."""
    return grown.get("finished") == 1 and grown.get("prefix_queries") == grown.get("prompt_tokens") == prompt_tokens


def served_model(client: httpx.Client, url: str) -> ServedModel:
    """The model that the server serves, and its version; ``RunFailed`` where it does not answer, or serves no model."""
    try:
        model = call_for_object(client, "GET", f"{url}/v1/models")["data"][0]
        name = str(model["id"])
    except (LookupError, TypeError):
        raise RunFailed(f"{mask_login(url)}/v1/models names no model; is this a vLLM server?") from None
    try:
        version = call_for_object(client, "GET", f"{url}/version")["version"]
    except (RunFailed, LookupError):
        version = None
    root, longest = model.get("root"), model.get("max_model_len")  # other servers than vLLM may mean something else by them
    return ServedModel(
        name,
        root if isinstance(root, str) else None,
        longest if isinstance(longest, int) else None,
        version if isinstance(version, str) else None,
    )


def reset_prefix_cache(client: httpx.Client, url: str) -> None:
    """Empty a vLLM server's prefix cache on the device. The tier behind it keeps what it has: that is for whoever put it there.

    Raises:
        RunFailed: it refused, which it says in a 200 too; or it was not started with ``VLLM_SERVER_DEV_MODE=1``.
    """
    try:
        answer = call_for_object(client, "POST", f"{url}/reset_prefix_cache")
    except RunFailed as error:
        if "answered 404" not in str(error):
            raise
        raise RunFailed(f"{error}; start the server with VLLM_SERVER_DEV_MODE=1") from None
    if answer.get("success") is not True:
        raise RunFailed(f"{url}/reset_prefix_cache: the cache was not reset; blocks are still held: wait for requests in flight")


def _pool(samples: Sequence[Sample]) -> DeviceCapacity | None:
    labels = next((sample.labels for sample in samples if sample.name == CACHE_CONFIG), {})
    try:
        block_size, blocks = int(labels["block_size"]), int(labels["num_gpu_blocks"])
    except (KeyError, ValueError):
        return None
    return DeviceCapacity(blocks * block_size, block_size)


NAMES = MetricNames(
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
    },
    {
        "running": ServerMetric("vllm:num_requests_running"),
        "waiting": ServerMetric("vllm:num_requests_waiting"),
        "kv_usage": ServerMetric("vllm:kv_cache_usage_perc"),
    },
    _pool,
)
"""Counters of a vLLM server, in tokens or requests; requests running and waiting, and the share of the pool in use, 0 to 1.

``prefix_*`` and ``external_*`` count tokens asked of the device's prefix cache and of the tier behind it, each request once, when it is
first scheduled. A tier is asked for what the device did not have. ``cached_tokens_host`` and the like name the tier only for connectors
that say it; LMCache's tokens are ``cached_tokens_unspecified`` in vLLM 0.32.
"""

KIND = ServerKind(
    name="vllm",
    title="vLLM",
    known="0.32",
    metrics=NAMES,
    pool_metric=CACHE_CONFIG,
    served_model=served_model,
    reset=reset_prefix_cache,
    tokens_by_tier=tokens_by_tier,
    contradiction=contradiction,
    was_alone=was_alone,
)
