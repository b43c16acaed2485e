"""The workload of a plan as the simulator reads it: prepared once, read at many sizes.

Which block of a prompt equals which does not depend on the sizes of the tiers, so finding it out, which takes longer than a simulation,
is done once. Pools are counted in units: blocks, or tokens where whole documents are kept; host tiers likewise in chunks, or tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from kvbench.experiments.workload import Workload
from kvbench.models.units import ceil_div
from kvbench.runners.base import as_source
from kvbench.runners.profiles import DeviceRules, HostRules, Profile
from kvbench.runners.simulator.policies.registry import make_policy
from kvbench.runners.simulator.prediction import in_order
from kvbench.runners.simulator.prefixes import Prefixes
from kvbench.runners.simulator.simulator import (
    BlockSimulator,
    CacheSizes,
    DocumentSimulator,
    Footprint,
    TierTokens,
    footprint_of,
    roomy_host,
)
from kvbench.workloads.passes import IN_ORDER


@dataclass(frozen=True, slots=True)
class PlannedPass:
    """One pass: of each request the document it reads and what it does to the tiers. ``label`` tells passes of the same name apart."""

    name: str
    label: str
    requests: tuple[tuple[int, Footprint], ...]


@dataclass(frozen=True, slots=True)
class PlannedReading:
    """All passes, read once from cold: prompt tokens by tier of each request, by pass. ``exact``: see the simulator's."""

    passes: tuple[tuple[TierTokens, ...], ...]
    exact: bool

    def device(self, index: int) -> int:
        """Tokens that a pass found on the device."""
        return TierTokens.total(self.passes[index]).device

    @property
    def hits(self) -> int:
        """Tokens that all passes found, in either tier."""
        tokens = TierTokens.total(chain.from_iterable(self.passes))
        return tokens.device + tokens.host

    @property
    def device_hits(self) -> int:
        """Tokens that all passes found on the device."""
        return TierTokens.total(chain.from_iterable(self.passes)).device


class PlannedWorkload(ABC):
    """A workload under a profile.

    Attributes:
        smallest_pool: in which every request can run; ``roomy_pool``: in which nothing is ever evicted.
        roomy_host: the smallest host tier that keeps everything the workload leaves there and evicts nothing.
        unit: tokens that a pool is counted in.
        chunk: tokens that a host tier is counted in.
        watermark: share of its capacity from which the host tier evicts in the background; 1: only to make room.
        device_policy, host_policy: names of the eviction policies.
        headline: index of the pass that speaks for re-reading: the first later one in order, else the last one.
    """

    device_policy = host_policy = "lru"
    smallest_pool: int
    roomy_pool: int
    roomy_host: int

    def __init__(self, passes: Sequence[PlannedPass], unit: int, chunk: int, watermark: float) -> None:
        self.passes, self.unit, self.chunk, self.watermark = passes, unit, chunk, watermark
        later = (index for index, item in enumerate(passes) if index and item.name in IN_ORDER)
        self.headline = next(later, len(passes) - 1)

    @property
    def footprints(self) -> Iterator[Footprint]:
        """Of all requests, in order."""
        return (footprint for item in self.passes for _, footprint in item.requests)

    @abstractmethod
    def read(self, pool: int, host: int | None) -> PlannedReading:
        """Read all passes from cold; ``host`` ``None``: no tier; ``UsageError``: a request or the sizes do not fit."""

    @abstractmethod
    def documents_in(self, pool: int) -> int:
        """Of how many documents a pool holds everything that can be found, once the first pass is read."""

    @abstractmethod
    def best_hits(self, pool: int) -> int | None:
        """The most tokens of all passes that any order of eviction finds in the pool (Belady's optimum); ``None``: not known."""


class BlockWorkload(PlannedWorkload):
    """Under a profile that keeps blocks and chunks."""

    def __init__(self, device: DeviceRules, host: HostRules, workload: Workload, block_size: int, chunk_tokens: int) -> None:
        super().__init__(_prepare(workload, block_size, chunk_tokens), block_size, chunk_tokens, host.watermark)
        self._device, self._host = device, host
        self.device_policy, self.host_policy = device.policy, host.policy
        blocks = [ceil_div(footprint.kv_tokens, block_size) for footprint in self.footprints]
        self.smallest_pool, self.roomy_pool = max(blocks) + device.reserved_blocks, sum(blocks) + device.reserved_blocks
        self.roomy_host = roomy_host(self.footprints, host, chunk_tokens)

    def read(self, pool: int, host: int | None) -> PlannedReading:
        """See :class:`PlannedWorkload`."""
        simulator = self._cold(pool, host)
        passes = tuple(tuple(simulator.run(footprint) for _, footprint in item.requests) for item in self.passes)
        return PlannedReading(passes, simulator.exact)

    def documents_in(self, pool: int) -> int:
        """See :class:`PlannedWorkload`."""
        requests, simulator = self.passes[0].requests, self._cold(pool, None)
        for _, footprint in requests:
            simulator.run(footprint)
        findable = ((document, self._cacheable(footprint)) for document, footprint in requests)
        return len({document for document, blocks in findable if simulator.pool.held(blocks) == len(blocks)})

    def best_hits(self, pool: int) -> int:
        """See :class:`PlannedWorkload`. A request leaves more blocks than it could find: its last one, and its output's."""
        wanted = [self._cacheable(footprint) for footprint in self.footprints]
        hits, room = 0, pool - self._device.reserved_blocks
        held = make_policy("belady", room, wanted)
        for footprint, blocks in zip(self.footprints, wanted, strict=True):
            hits += held.leading_run(blocks)
            held.admit(footprint.blocks, room)
        return hits * self.unit

    def _cold(self, pool: int, host: int | None) -> BlockSimulator:
        """A simulator that has read nothing; sizes as for :meth:`read`."""
        capacity = CacheSizes(pool * self.unit, self.unit, None if host is None else host * self.chunk, self.chunk)
        return BlockSimulator(self._device, self._host, capacity)

    def _cacheable(self, footprint: Footprint) -> Sequence[object]:
        """The blocks of a prompt that can be found."""
        return footprint.blocks[: (footprint.prompt_tokens - int(self._device.computes_last)) // self.unit]


class DocumentWorkload(PlannedWorkload):
    """Under the published measurement's own model, to the token."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(_prepare(workload, None, None), 1, 1, 1.0)
        self._sizes = {document: footprint.prompt_tokens for item in self.passes for document, footprint in item.requests}
        self.smallest_pool, self.roomy_pool = max(self._sizes.values()), sum(self._sizes.values())
        self.roomy_host = self.roomy_pool

    def read(self, pool: int, host: int | None) -> PlannedReading:
        """See :class:`PlannedWorkload`."""
        simulator = DocumentSimulator(CacheSizes(pool, 1, host))
        passes = tuple(
            tuple(simulator.read(range(footprint.prompt_tokens), 0, document) for document, footprint in item.requests)
            for item in self.passes
        )
        return PlannedReading(passes, simulator.exact)

    def documents_in(self, pool: int) -> int:
        """See :class:`PlannedWorkload`."""
        documents: set[int] = set()
        for document, _ in reversed(self.passes[0].requests):
            if sum(self._sizes[held] for held in documents | {document}) > pool:
                break
            documents.add(document)
        return len(documents)

    def best_hits(self, pool: int) -> None:
        """Not known where documents differ in length; see :class:`PlannedWorkload`."""


def plan_workload(profile: Profile, workload: Workload, block_size: int, chunk_tokens: int) -> PlannedWorkload:
    """A workload under a profile; the sizes mean nothing where whole documents are kept."""
    if profile.device is None or profile.host is None:
        return DocumentWorkload(workload)
    return BlockWorkload(profile.device, profile.host, workload, block_size, chunk_tokens)


def _prepare(workload: Workload, block_size: int | None, chunk_tokens: int | None) -> list[PlannedPass]:
    """The passes with their footprints; ``None``: nobody asks for blocks, or chunks."""
    blocks, chunks = (None if size is None else Prefixes(size) for size in (block_size, chunk_tokens))
    seen: dict[str, int] = {}
    passes = []
    for plan in workload.passes:
        seen[plan.name] = seen.get(plan.name, 0) + 1
        label = plan.name if seen[plan.name] == 1 else f"{plan.name}#{seen[plan.name]}"
        requests = []
        for request in in_order(as_source(workload.requests("plan", 0, plan))):
            requests.append((request.key.doc_id, footprint_of(request.prompt, request.output_tokens, blocks, chunks)))
        passes.append(PlannedPass(plan.name, label, tuple(requests)))
    return passes
