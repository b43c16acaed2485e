"""The simulator: requests one at a time, and of each how many of its prompt tokens come from which tier.

No model, no clock, no transfers: what a tier holds is all there is. It shares no code with the engine, whose rules it restates, so that
the two can be held against each other.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kvbench.errors import UsageError
from kvbench.models.units import ceil_div
from kvbench.runners.profiles import DeviceRules, HostRules, Profile
from kvbench.runners.simulator.device_pool import DevicePool
from kvbench.runners.simulator.documents import DocumentCache
from kvbench.runners.simulator.host_tier import ChunkTier
from kvbench.runners.simulator.policies.policy import Key
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


class Footprint(NamedTuple):
    """What a request does to the tiers: the tokens of its prompt, those that have KV in the end, and the keys of their full units.

    ``blocks`` and ``chunks`` are head first; equal keys mean an equal prefix, its end included.
    """

    prompt_tokens: int
    kv_tokens: int
    blocks: Sequence[Key]
    chunks: Sequence[Key] = ()


class Simulator(Protocol):
    """Predicts requests in the order in which they are sent, from a cold start, at concurrency 1."""

    @property
    def exact(self) -> bool:
        """Whether what was predicted so far is certain, or hangs on the moment at which a background job ran."""

    def read(self, prompt: Sequence[int], output_tokens: int, document: Hashable = None, output: Sequence[int] | None = None) -> TierTokens:
        """Run one request; changes what the tiers hold.

        Args:
            prompt: token ids, none below 0 but :data:`UNKNOWN_OUTPUT`.
            output_tokens: how many are generated; the last one gets no KV.
            document: which document it is, for profiles that know only whole documents; ``None``: the prompt itself.
            output: the generated ids where they are known, for prompts that continue an earlier answer.

        Raises ``UsageError``: the request does not fit the pool.
        """


def make_simulator(profile: Profile, capacity: CacheSizes) -> Simulator:
    """A cold simulator.

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
        self._pool = DevicePool(capacity.device_tokens // self.block_size, device)
        self._tier = None
        if capacity.host_tokens is not None:
            self._tier = ChunkTier(capacity.host_tokens // self.chunk_tokens, self.chunk_tokens, host)

    @property
    def exact(self) -> bool:
        """See :class:`Simulator`."""
        return self._tier is None or self._tier.exact

    def run(self, request: Footprint) -> TierTokens:
        """Run one request; changes what the tiers hold; ``UsageError``: the request does not fit the pool."""
        prompt, kv, blocks, chunks = request
        size = self.block_size
        limit = prompt - self._left_to_compute  # where a hit ends at the latest
        device = self._pool.read(blocks, limit // size, ceil_div(prompt, size), ceil_div(kv, size)) * size
        if self._tier is None:
            return TierTokens(device, 0, prompt - device)
        if self._ends_at_block:
            limit = limit // size * size
        chunk = self.chunk_tokens
        end, found_end = self._tier.load(chunks[: prompt // chunk], device, limit)
        first = (found_end if self._stores_hits else end) // chunk
        self._tier.store(chunks[first : (kv if self._stores_output else prompt) // chunk])
        return TierTokens(device, end - device, prompt - end)

    def held(self, blocks: Sequence[Key]) -> int:
        """How many of these blocks, head first, the device pool holds, the leading run; changes nothing."""
        return self._pool.held(blocks)


class PromptSimulator:
    """A :class:`BlockSimulator` for token ids."""

    def __init__(self, device: DeviceRules, host: HostRules, capacity: CacheSizes) -> None:
        """Raises ``UsageError`` as :func:`make_simulator`."""
        self._tiers = BlockSimulator(device, host, capacity)
        self._blocks = Prefixes(self._tiers.block_size)
        self._chunks = None if capacity.host_tokens is None else Prefixes(self._tiers.chunk_tokens)

    @property
    def exact(self) -> bool:
        """See :class:`Simulator`."""
        return self._tiers.exact

    def read(self, prompt: Sequence[int], output_tokens: int, document: Hashable = None, output: Sequence[int] | None = None) -> TierTokens:
        """Run one request; see :class:`Simulator`. ``document`` is not looked at."""
        tokens = array("q", prompt)
        tokens.extend([UNKNOWN_OUTPUT] * (output_tokens - 1) if output is None else output[: output_tokens - 1])
        chunks = [] if self._chunks is None else self._chunks.of(tokens)
        return self._tiers.run(Footprint(len(prompt), len(tokens), self._blocks.of(tokens), chunks))


class DocumentSimulator:
    """The published measurement's own three rules.

    Found on the device, done; found in the host tier, loaded; found nowhere, computed and kept in both.
    """

    exact = True

    def __init__(self, capacity: CacheSizes) -> None:
        self._device = DocumentCache(capacity.device_tokens)
        self._host = None if capacity.host_tokens is None else DocumentCache(capacity.host_tokens)

    def read(self, prompt: Sequence[int], output_tokens: int, document: Hashable = None, output: Sequence[int] | None = None) -> TierTokens:
        """Read one document; see :class:`Simulator`. Its size is the prompt's; the output takes no room."""
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
