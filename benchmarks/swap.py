"""Swapping out and in 1,024 and 4,096 tokens, in runs of consecutive device blocks of several lengths and scattered, against memcpy.

The baseline copies as many contiguous bytes with the same threads, in huge pages as the pool is. The swap space's places
rotate over four times the data, so that no cache helps. Targets: at least 0.8 of memcpy in runs of 16 blocks or more; scattered, 0.4 (tiny)
and 0.5 (SmolLM2). With one thread, its CPU time is taken, which others on the same cores do not lengthen.
Run: python benchmarks/swap.py [--model FOLDER]
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import torch

from common import interleaved, load, median_ms, parse, report
from kvbench.runners.engine.kv import huge_pages
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.transfer import CpuTransfer, SwapCopy

BLOCK, POOL_BLOCKS, SOURCES = 16, 1345, 4
HISTORIES = (1024, 4096)
RUN_LENGTHS = (64, 16, 4, 1)


def clock() -> float:
    """Seconds: of CPU where one thread copies, else of the wall clock."""
    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


def main() -> None:
    options = parse(__doc__ or "")
    model = load(options.model, options.dtype)
    shares: dict[str, dict[str, float]] = {}
    medians: dict[str, float] = {}
    for tokens in HISTORIES:
        count = tokens // BLOCK
        store = KVStore(model.shape, POOL_BLOCKS, BLOCK, torch.device("cpu"), 0, 1, count * SOURCES)
        store.device.fill_(1)
        store.swap.fill_(1)
        functions: dict[str, Callable[[int], float | None]] = {"memcpy": memcpy(count * store.block_bytes)}
        for length in RUN_LENGTHS:
            blocks = blocks_in_runs(length, count)
            functions[f"out_in_runs_of_{length}"] = swap(store, blocks, out=True)
            functions[f"in_in_runs_of_{length}"] = swap(store, blocks, out=False)
        seconds = interleaved(functions, options.pairs)
        names = [name for name in seconds if name != "memcpy"]
        shares[f"{tokens}_tokens"] = {name: share(seconds["memcpy"], seconds[name]) for name in names}
        medians |= {f"{name} of {tokens}": value for name, value in median_ms(seconds).items()}
    report(
        "swap",
        options,
        {"share_of_memcpy": shares, "median_ms": medians},
        baseline="one contiguous torch copy of as many bytes",
        clock="CPU time of the thread" if torch.get_num_threads() == 1 else "wall",
        cache_state=f"host side rotates over {SOURCES} times the data",
    )


def memcpy(size: int) -> Callable[[int], float]:
    """A contiguous copy of ``size`` bytes out of host memory that rotates."""
    host = huge_pages.zeros((SOURCES, size // 8), torch.int64).fill_(1)
    target = huge_pages.zeros((size // 8,), torch.int64)

    def run(number: int) -> float:
        begin = clock()
        target.copy_(host[number % SOURCES])
        return clock() - begin

    return run


def swap(store: KVStore, blocks: list[int], out: bool) -> Callable[[int], float]:
    """Moves of these device blocks out of the pool or back into it."""
    transfer = CpuTransfer(store)
    move = transfer.store if out else transfer.load

    def run(number: int) -> float:
        first = number % SOURCES * len(blocks)
        begin = clock()
        move([SwapCopy(list(range(first, first + len(blocks))), blocks)]).wait()
        return clock() - begin

    return run


def share(baseline: list[float], own: list[float]) -> float:
    """Median of the baseline's time over ours, round by round."""
    return round(statistics.median(base / mine for base, mine in zip(baseline, own, strict=True)), 3)


def blocks_in_runs(length: int, count: int) -> list[int]:
    """Device blocks for the whole history: runs of ``length`` consecutive ones, the runs at random places."""
    starts = list(range(0, POOL_BLOCKS - length + 1, length))
    random.Random(0).shuffle(starts)
    return [start + offset for start in starts for offset in range(length)][:count]


if __name__ == "__main__":
    main()
