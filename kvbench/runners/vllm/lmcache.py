"""An LMCache server: what it calls what it counts, whether its stores have landed, and a tier that starts from nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx

from kvbench.errors import RunFailed
from kvbench.runners.http.admin_api import call_for_object
from kvbench.runners.servers.counters import MetricNames, ServerMetric

KNOWN_LMCACHE = "0.5"
"""The version that the names here and in :mod:`kvbench.runners.vllm.tiers` were read from and tested with (0.5.6)."""

LMCACHE = MetricNames(
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
A counter appears when it first counts, and LMCache publishes them from a queue: read them when :attr:`LMCacheStatus.quiet` holds.
"""

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class LMCacheStatus:
    """What ``GET /status`` says, summed over the server's first tiers."""

    chunks: int
    """Objects in the first tier: a chunk each, for each rank of the model."""

    used_bytes: int
    writing: int
    """Objects being written to the first tier."""

    storing: int
    """Keys waiting for, and tasks of, a store to the second tier."""

    loading: int
    """Objects being read, and loads from the second tier."""

    workers: int
    """Engine workers that have registered their KV. 0 after start-up: the engine will never use this tier."""

    @property
    def quiet(self) -> bool:
        """Whether nothing moves."""
        return not (self.writing or self.storing or self.loading)


def read_status(client: httpx.Client, url: str) -> LMCacheStatus:
    """The status of an LMCache server at its HTTP port; ``RunFailed`` where it does not answer, or not as LMCache 0.5 does."""
    try:
        status: dict[str, Any] = call_for_object(client, "GET", f"{url}/status")
        storage = status["storage_manager"]
        tiers, stores = list(storage["l1_managers"].values()), list(storage["store_controllers"].values())
        prefetch = storage["prefetch_controller"]
        return LMCacheStatus(
            chunks=sum(tier["total_object_count"] - tier["staging_object_count"] for tier in tiers),
            used_bytes=sum(tier["memory_used_bytes"] for tier in tiers),
            writing=sum(tier["write_locked_count"] + tier["staging_object_count"] for tier in tiers),
            storing=sum(store["pending_keys_count"] + store["in_flight_task_count"] for store in stores),
            loading=sum(tier["read_locked_count"] for tier in tiers)
            + sum(prefetch[name] for name in ("submission_queue_size", "pending_queue_size", "in_flight_request_count")),
            workers=len(status["registered_gpu_ids"]) + len(status["registered_non_cuda_instance_ids"]),
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise RunFailed(f"{url}/status is not what LMCache 0.5 answers ({type(error).__name__}: {error})") from None


def await_stores(client: httpx.Client, url: str, timeout_s: float, chunks: int | None = None) -> LMCacheStatus:
    """Wait until nothing moves in two readings that are the same, and at least ``chunks`` are there; returns the last reading.

    Ask for ``chunks`` where the number is known, as the engine may not have begun a store yet when its request has ended.

    Raises:
        RunFailed: that did not come within the time; says what was still moving.
    """
    deadline = time.monotonic() + timeout_s
    before = read_status(client, url)
    while True:
        time.sleep(POLL_S)
        status = read_status(client, url)
        if status.quiet and status == before and (chunks is None or status.chunks >= chunks):
            return status
        if time.monotonic() > deadline:
            wanted = "" if chunks is None else f" of {chunks}"
            raise RunFailed(
                f"LMCache's stores did not land within {timeout_s:g} s: {status.chunks}{wanted} chunks are there, "
                f"{status.writing} being written, {status.storing} on the way to the second tier, {status.loading} being loaded"
            )
        before = status


def clear(client: httpx.Client, url: str) -> None:
    """Empty an LMCache server's first tier (0.5 cannot clear a second one); ``RunFailed``: it refused, or objects are left."""
    answer = call_for_object(client, "POST", f"{url}/cache/clear")
    if answer.get("status") != "ok":
        raise RunFailed(f"{url}/cache/clear did not clear ({answer})")
    left = read_status(client, url).chunks
    if left:
        raise RunFailed(f"{url}/cache/clear left {left} chunks; something still uses them: wait for requests in flight")
