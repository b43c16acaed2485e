"""Restoring 4,864 tokens from the host tier, in runs of consecutive device blocks of several lengths and scattered, against memcpy.

The baseline copies as many contiguous bytes with the same threads, in huge pages as the pool is. Sources rotate over four
times the data, so that no cache helps. Targets: at least 0.8 of memcpy in runs of 16 blocks or more; scattered, 0.4 (tiny) and
0.5 (SmolLM2).
Run: python benchmarks/restore.py [--model FOLDER]
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import torch

from common import interleaved, load, median_ms, parse, report
from kvbench.runners.engine.kv import huge_pages
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.transfer import Copy, CpuTransfer

BLOCK, CHUNK_BLOCKS, CHUNKS, POOL_BLOCKS, SOURCES = 16, 16, 19, 1345, 4
RUN_LENGTHS = (304, 64, 16, 4, 1)


def main() -> None:
    options = parse(__doc__ or "")
    model = load(options.model, options.dtype)
    store = KVStore(model.shape, POOL_BLOCKS, BLOCK, torch.device("cpu"), CHUNKS * SOURCES, CHUNK_BLOCKS)
    store.host.fill_(1)
    transfer = CpuTransfer(store)
    flat = store.host.view(torch.int64).view(SOURCES, -1)
    target = huge_pages.zeros(flat[0].shape, flat.dtype)

    def memcpy(number: int) -> float:
        begin = time.perf_counter()
        target.copy_(flat[number % SOURCES])
        return time.perf_counter() - begin

    def restore(blocks: list[int]) -> Callable[[int], float]:
        def run(number: int) -> float:
            first = number % SOURCES * CHUNKS
            copies = [Copy(first + chunk, 0, blocks[chunk * CHUNK_BLOCKS : (chunk + 1) * CHUNK_BLOCKS]) for chunk in range(CHUNKS)]
            begin = time.perf_counter()
            transfer.load(copies).wait()
            return time.perf_counter() - begin

        return run

    functions: dict[str, Callable[[int], float | None]] = {"memcpy": memcpy}
    functions |= {f"runs_of_{length}": restore(blocks_in_runs(length)) for length in RUN_LENGTHS}
    seconds = interleaved(functions, options.pairs)
    share = {
        name: {"median": round(sorted(base / own for base, own in zip(seconds["memcpy"], values, strict=True))[len(values) // 2], 3)}
        for name, values in seconds.items()
        if name != "memcpy"
    }
    report(
        "restore",
        options,
        {"share_of_memcpy": share, "median_ms": median_ms(seconds)},
        tokens=CHUNKS * CHUNK_BLOCKS * BLOCK,
        mib=round(target.nbytes / 2**20, 1),
        baseline="one contiguous torch copy of as many bytes",
        cache_state=f"sources rotate over {SOURCES} times the data",
    )


def blocks_in_runs(length: int) -> list[int]:
    """Device blocks for the whole restore: runs of ``length`` consecutive ones, the runs at random places."""
    starts = list(range(0, POOL_BLOCKS - length + 1, length))
    random.Random(0).shuffle(starts)
    return [start + offset for start in starts for offset in range(length)][: CHUNKS * CHUNK_BLOCKS]


if __name__ == "__main__":
    main()
