"""A host tier of k documents, k = 1 .. 10, against a brute-force simulation that is written out here."""

from __future__ import annotations

import pytest

from kvbench.runners.profiles import DOCUMENTS, ENGINE, VLLM, Profile
from kvbench.runners.simulator.host_tier import ChunkTier, chunks_to_hold
from kvbench.runners.simulator.simulator import CacheSizes, make_simulator
from tests.runners.simulator.workloads import prompt

DOCS, TOKENS = 10, 5025
ORDERS = [list(range(DOCS)), list(range(DOCS)), list(reversed(range(DOCS))), [0, 0, 5, 1, 5, 9, 0, 2, 5, 9], list(range(DOCS))]


def least_recent(held: dict[object, int]) -> object:
    return min(held, key=lambda key: held[key])


def brute_documents(device_size: int, host_size: int) -> list[tuple[int, int, int]]:
    """The published measurement's own three rules, on sets with the time of last use, in whole documents."""
    device: dict[object, int] = {}
    host: dict[object, int] = {}
    found = []
    for time, document in enumerate(document for order in ORDERS for document in order):
        source = "device" if document in device else "host" if document in host else "computed"
        device[document] = time
        while len(device) > device_size:
            del device[least_recent(device)]
        if source != "device":
            host[document] = time
            while len(host) > host_size:
                del host[least_recent(host)]
        found.append((TOKENS * (source == "device"), TOKENS * (source == "host"), TOKENS * (source == "computed")))
    return found


@pytest.mark.parametrize("k", range(1, 11))
def test_whole_documents(k: int) -> None:
    simulator = make_simulator(DOCUMENTS, CacheSizes(4 * TOKENS, 16, k * TOKENS))
    found = [tuple(simulator.read(prompt(document, TOKENS), 8, document)) for order in ORDERS for document in order]
    assert found == brute_documents(4, k)


def brute_blocks(pool: int, host_chunks: int, block: int = 16, chunk: int = 256, output: int = 8) -> list[tuple[int, int, int]]:
    """The engine's rules on named blocks, one list in the order of reuse; a block is (document, index), a chunk likewise."""
    order: list[object] = [("blank", number) for number in range(pool)]
    host: dict[object, int] = {}
    now = 0
    found = []
    for document in [document for reading in ORDERS for document in reading]:
        limit = (TOKENS - 1) // block
        hits = 0
        while hits < limit and (document, hits) in order:
            hits += 1
        end = hits * block
        while end < limit * block and (document, "chunk", end // chunk) in host and end // chunk < TOKENS // chunk:
            now += 1
            host[document, "chunk", end // chunk] = now
            end = min((end // chunk + 1) * chunk, limit * block)
        kv = TOKENS + output - 1
        for index in range(hits):
            order.remove((document, index))
        del order[: -(-kv // block) - hits]
        order[:0] = [("blank", document)] * (-(-kv // block) - kv // block)
        order += [(document, index) for index in reversed(range(kv // block))]
        for number in range(end // chunk, kv // chunk):
            if host_chunks:
                now += 1
                host[document, "chunk", number] = now
                if len(host) > host_chunks:
                    del host[least_recent(host)]
        found.append((hits * block, end - hits * block, TOKENS - end))
    return found


@pytest.mark.parametrize("k", range(11))
def test_blocks_and_chunks(k: int) -> None:
    chunks = k * (TOKENS // 256)
    simulator = make_simulator(ENGINE, CacheSizes(21_520, 16, chunks * 256))
    found = [tuple(simulator.read(prompt(document, TOKENS), 8)) for order in ORDERS for document in order]
    assert found == brute_blocks(1345, chunks)
    hits = sum(host for _, host, _ in found[10:20])
    assert hits == (48_640 if k == 10 else 0)  # re-read in order: all or nothing again


def kept(chunks: int, capacity: int, profile: Profile) -> int:
    """Chunks left in a tier after as many were stored, one request's after the other's."""
    assert profile.host is not None
    tier = ChunkTier(capacity, 256, profile.host)
    for first in range(0, chunks, 19):
        tier.store(range(first, min(first + 19, chunks)))
    return len(tier)


@pytest.mark.parametrize("profile", [ENGINE, VLLM], ids=["engine", "vllm"])
@pytest.mark.parametrize("chunks", [*range(40), 190, 800, 4000])
def test_the_smallest_tier_that_evicts_nothing(profile: Profile, chunks: int) -> None:
    assert profile.host is not None
    capacity = chunks_to_hold(chunks, profile.host)
    assert kept(chunks, capacity, profile) == chunks
    assert chunks == 0 or kept(chunks, capacity - 1, profile) < chunks
