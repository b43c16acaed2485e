"""The simulator: requests one at a time, and of each how many of its prompt tokens come from which tier.

No model, no clock, no transfers: what a tier holds is all there is. It shares no code with the engine, whose rules it restates, so that
the two can be compared with each other.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvbench.errors import UsageError
from kvbench.models.units import ceil_div
from kvbench.runners.profiles import DeviceRules, HostRules, Profile
from kvbench.runners.simulator.device_pool import DevicePool
from kvbench.runners.simulator.host_tier import ChunkTier, chunks_to_hold
from kvbench.runners.simulator.policies.policy import Key
from kvbench.runners.simulator.policies.registry import make_policy
from kvbench.runners.simulator.prefixes import Prefixes

UNKNOWN_OUTPUT = -1
"""Stands for each output token that is not known. Decoding is greedy, so equal prompts have equal outputs; no prompt of a list has this id,
and a prompt that holds an answer has it where the answer stands."""


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Sizes of the tiers in tokens, rounded down to whole blocks and chunks. ``host_tokens`` ``None``: there is no host tier.

    ``chunk_tokens`` ``None``: the profile's. ``block_size`` and chunks mean nothing where whole documents are kept.
    """

    device_tokens: int
    block_size: int
    host_tokens: int | None = None
    chunk_tokens: int | None = None


class TierTokens(NamedTuple):
    """Prompt tokens of one request by where they came from; they sum to the prompt."""

    device: int
    host: int
    computed: int

    @classmethod
    def total(cls, requests: Iterable[TierTokens]) -> TierTokens:
        """The sums over requests."""
        return cls(*(sum(part) for part in zip((0, 0, 0), *requests, strict=True)))


class Footprint(NamedTuple):
    """What a request does to the tiers: the tokens of its prompt, those that have KV in the end, and the keys of their full units.

    ``blocks`` and ``chunks`` are head first; equal keys mean an equal prefix, its end included.
    """

    prompt_tokens: int
    kv_tokens: int
    blocks: Sequence[Key]
    chunks: Sequence[Key] = ()


def footprint_of(
    prompt: Sequence[int], output_tokens: int, blocks: Prefixes | None, chunks: Prefixes | None, output: Sequence[int] | None = None
) -> Footprint:
    """Of a request's token ids; ``blocks``, ``chunks`` ``None``: nobody asks for them; ``output`` ``None``: not known."""
    tokens = array("q", prompt)
    tokens.extend([UNKNOWN_OUTPUT] * (output_tokens - 1) if output is None else output[: output_tokens - 1])
    return Footprint(len(prompt), len(tokens), *(() if units is None else units.of(tokens) for units in (blocks, chunks)))


def roomy_host(footprints: Iterable[Footprint], rules: HostRules, chunk_tokens: int) -> int:
    """The smallest host tier, in chunks, that keeps everything that requests leave there and evicts nothing."""
    stored: set[Key] = set()
    for item in footprints:
        stored.update(item.chunks[: (item.kv_tokens if rules.stores_output else item.prompt_tokens) // chunk_tokens])
    return chunks_to_hold(len(stored), rules)


def make_simulator(profile: Profile, capacity: CacheSizes) -> PromptSimulator | DocumentSimulator:
    """A cold simulator: predicts requests in the order in which they are sent, at concurrency 1.

    Raises ``UsageError``: the sizes do not go together: a block or chunk without tokens, or chunks that are not whole blocks.
    """
    if profile.device is None or profile.host is None:
        return DocumentSimulator(capacity)
    return PromptSimulator(profile.device, profile.host, capacity)


class BlockSimulator:
    """Device pool and host tier under a profile's rules, for requests whose blocks and chunks have keys already (traces)."""

    def __init__(self, device: DeviceRules, host: HostRules, capacity: CacheSizes) -> None:
        """Raises ``UsageError`` as :func:`make_simulator`."""
        self.block_size = capacity.block_size
        self.chunk_tokens = host.chunk_tokens if capacity.chunk_tokens is None else capacity.chunk_tokens
        if self.block_size < 1 or self.chunk_tokens < 1:
            raise UsageError(f"blocks of {self.block_size} and chunks of {self.chunk_tokens} tokens; both must hold at least one")
        if capacity.host_tokens is not None and self.chunk_tokens % self.block_size:
            raise UsageError(f"--chunk-tokens {self.chunk_tokens} is not a multiple of --block-size {self.block_size}")
        self._left_to_compute = int(device.computes_last)  # tokens
        self._ends_at_block, self._stores_hits, self._stores_output = host.hit_ends_at_block, host.stores_device_hits, host.stores_output
        self.pool = DevicePool(capacity.device_tokens // self.block_size, device)
        self._tier = None
        if capacity.host_tokens is not None:
            self._tier = ChunkTier(capacity.host_tokens // self.chunk_tokens, self.chunk_tokens, host)

    @property
    def exact(self) -> bool:
        """Whether what was predicted so far is certain, or depends on the moment at which a background job ran."""
        return self._tier is None or self._tier.exact

    def run(self, request: Footprint) -> TierTokens:
        """Run one request; changes what the tiers hold; raises ``UsageError`` if the request does not fit the pool."""
        prompt, kv, blocks, chunks = request
        size = self.block_size
        limit = prompt - self._left_to_compute  # where a hit ends at the latest
        device = self.pool.read(blocks, limit // size, ceil_div(prompt, size), ceil_div(kv, size)) * size
        if self._tier is None:
            return TierTokens(device, 0, prompt - device)
        if self._ends_at_block:
            limit = limit // size * size
        chunk = self.chunk_tokens
        end, found_end = self._tier.load(chunks[: prompt // chunk], device, limit)
        first = (found_end if self._stores_hits else end) // chunk
        self._tier.store(chunks[first : (kv if self._stores_output else prompt) // chunk])
        return TierTokens(device, end - device, prompt - end)


class PromptSimulator(BlockSimulator):
    """A :class:`BlockSimulator` for token ids."""

    def __init__(self, device: DeviceRules, host: HostRules, capacity: CacheSizes) -> None:
        """Raises ``UsageError`` as :func:`make_simulator`."""
        super().__init__(device, host, capacity)
        self._blocks = Prefixes(self.block_size)
        self._chunks = None if capacity.host_tokens is None else Prefixes(self.chunk_tokens)

    def read(self, prompt: Sequence[int], output_tokens: int, document: Hashable = None, output: Sequence[int] | None = None) -> TierTokens:
        """Run one request; changes what the tiers hold.

        Args:
            prompt: token ids, none below 0 but :data:`UNKNOWN_OUTPUT`.
            output_tokens: how many are generated; the last one gets no KV.
            document: which document it is, for profiles that know only whole documents; not looked at.
            output: the generated ids where they are known, for prompts that continue an earlier answer.

        Raises ``UsageError``: the request does not fit the pool.
        """
        return self.run(footprint_of(prompt, output_tokens, self._blocks, self._chunks, output))


class DocumentSimulator:
    """The published measurement's own three rules.

    Found on the device, done; found in the host tier, loaded; found nowhere, computed and kept in both.
    """

    exact = True

    def __init__(self, capacity: CacheSizes) -> None:
        self._device = DocumentCache(capacity.device_tokens)
        self._host = None if capacity.host_tokens is None else DocumentCache(capacity.host_tokens)

    def read(self, prompt: Sequence[int], output_tokens: int, document: Hashable = None, output: Sequence[int] | None = None) -> TierTokens:
        """Read one document (``None``: the prompt itself). Its size is the prompt's; the output takes no room."""
        name, tokens = tuple(prompt) if document is None else document, len(prompt)
        if self._device.hit(name):
            return TierTokens(tokens, 0, 0)
        self._device.put(name, tokens)
        if self._host is None:
            return TierTokens(0, 0, tokens)
        if self._host.hit(name):
            return TierTokens(0, tokens, 0)
        self._host.put(name, tokens)
        return TierTokens(0, 0, tokens)


class DocumentCache:
    """Room for ``capacity`` tokens of whole documents, as the published model has it. One that is larger is never kept, and evicts nothing.

    LRU is part of the published model, so a profile of whole documents names no other policy.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._kept = make_policy("lru", capacity)
        self._tokens: dict[Hashable, int] = {}

    def hit(self, document: Hashable) -> bool:
        """Whether the document is here; uses it if so."""
        if document not in self._kept:
            return False
        self._kept.use([document])
        return True

    def put(self, document: Hashable, tokens: int) -> None:
        """Keep a document that is not here as the most recently used one; what is in the way goes."""
        if tokens > self.capacity:
            return
        while self.used + tokens > self.capacity:
            [gone] = self._kept.evict(1)
            self.used -= self._tokens.pop(gone)
        self._kept.use([document])
        self._tokens[document] = tokens
        self.used += tokens
