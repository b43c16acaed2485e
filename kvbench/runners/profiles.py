"""Profiles: the cache semantics of an engine version as data. Read by the simulator, and by nothing in the engine.

``vllm`` was read from vLLM 0.32 (``v1/core/block_pool.py``) and LMCache 0.5.6 in its multi-process mode (``lmcache_mp_connector.py``,
``lmcache_mp_metadata.py``, ``eviction_policy/lru.py``, ``eviction_controller.py``), and agrees with what both were measured to do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """How a device pool of blocks is reused: under a policy, and what that is told."""

    reserved_blocks: int
    """Blocks of the pool that never hold a request's KV."""

    blanks_first: bool
    """Whether freed blocks that nobody can find (not full) are reused before all others, or take their place among them."""

    tail_first: bool
    """Whether the tail of a finished request is reused before its head."""

    keeps_duplicates: bool
    """Whether a block with the content of another one can be found as well; else only the first one can."""

    computes_last: bool
    """Whether the block of the last prompt token is computed even when it is cached: a hit is then at most ⌊(prompt − 1) / B⌋ blocks."""

    policy: str = "lru"
    """Which free block that can be found is reused first: an eviction policy of the simulator, by name."""


@dataclass(frozen=True, slots=True)
class HostRules:
    """How the chunks of a host tier are found, written and evicted."""

    chunk_tokens: int
    """Tokens of a chunk, unless the run says otherwise."""

    found_from_start: bool
    """Whether the run of chunks found begins at the prompt's first chunk, and is used whole, device hit or not; else it begins in the
    chunk in which the device's hit ends, and what the device holds is neither looked up nor used."""

    hit_ends_at_block: bool
    """Whether a hit ends at the last block that may be cached; else only the last prompt token is left to compute."""

    stores_device_hits: bool
    """Whether chunks are written that the device held and the tier did not; else only chunks that the request completed."""

    stores_output: bool
    """Whether chunks that the output completes are written."""

    watermark: float
    """Share of the capacity at which eviction begins. 1: only to make room, a chunk at a time, and room is always made. Below 1: a
    background job evicts; what finds no room before it has run is not stored."""

    evicted_share: float
    """Share of the kept chunks that one round evicts, at least one chunk; unused at a watermark of 1."""

    policy: str = "lru"
    """Which chunk is evicted first: an eviction policy of the simulator, by name."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One engine version. ``device`` and ``host`` are ``None`` where whole documents, and not blocks, are kept (LRU, by tokens)."""

    name: str
    device: DeviceRules | None
    host: HostRules | None

    def under(self, device_policy: str | None, host_policy: str | None) -> Profile:
        """The same with other eviction policies; ``None``: its own. Where whole documents are kept there is no other."""
        device = self.device and replace(self.device, policy=device_policy or self.device.policy)
        return replace(self, device=device, host=self.host and replace(self.host, policy=host_policy or self.host.policy))


ENGINE = Profile(
    name="engine",
    device=DeviceRules(reserved_blocks=0, blanks_first=True, tail_first=True, keeps_duplicates=False, computes_last=True),
    host=HostRules(
        chunk_tokens=256,
        found_from_start=False,
        hit_ends_at_block=True,
        stores_device_hits=False,
        stores_output=True,
        watermark=1.0,
        evicted_share=0.0,
    ),
)

VLLM = Profile(
    name="vllm",
    device=DeviceRules(reserved_blocks=1, blanks_first=True, tail_first=True, keeps_duplicates=True, computes_last=True),
    host=HostRules(
        chunk_tokens=256,
        found_from_start=True,
        hit_ends_at_block=False,
        stores_device_hits=True,
        stores_output=False,
        watermark=0.8,
        evicted_share=0.2,
    ),
)

DOCUMENTS = Profile(name="documents", device=None, host=None)
"""The published measurement's own model: whole documents, by tokens."""

PROFILES = MappingProxyType({profile.name: profile for profile in (ENGINE, VLLM, DOCUMENTS)})
"""Every profile by its name."""
