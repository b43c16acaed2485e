"""The simulator's speed on the public traces, each figure beside an OrderedDict loop that counts by the same rule, in the same run.

Targets: one capacity, one tier: at least the loop's speed; two tiers with chunks: at least half of it; all capacities at once: at most
0.1 s after loading; ten million accesses: close to linear. Loading is measured in a process of its own, on the conversation trace and on
a file of ten million accesses made of it.
Run: python benchmarks/cache_simulator.py [--data ../shared/data]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kvbench.models.units import ceil_div
from kvbench.runners.profiles import ENGINE
from kvbench.runners.simulator.block_trace import BlockTrace
from kvbench.runners.simulator.replay import replay
from kvbench.runners.simulator.simulator import BlockSimulator, CacheSizes, Footprint
from kvbench.runners.simulator.stack_distance import hit_curve
from kvbench.workloads.prompt_text import PromptText
from kvbench.workloads.traces.trace import load_trace
from kvbench.workloads.traces.tracefile import TraceFile
from lines import add_output, write_line

TRACES = ("conversation", "synthetic")
CAPACITY, HOST_BLOCKS, BLOCK = 10_000, 60_000, 512
CHUNK_BLOCKS = (16, 2)
"""16 is the default's: chunks of 256 tokens and blocks of 16. With 2 the tier is touched half as often as the pool: the hard case."""
ROUNDS = 7
MANY = 10_000_000

Requests = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the Mooncake traces")
    add_output(parser)
    options = parser.parse_args()
    traces = {name: load(options.data / f"mooncake_{name}_trace.jsonl") for name in TRACES}
    results: dict[str, Any] = {name: measure(trace) for name, trace in traces.items()}
    results["many"] = measure_many(traces["conversation"])
    results["loading"] = measure_loading(options.data / "mooncake_conversation_trace.jsonl", traces["conversation"].accesses)
    facts = {
        "baseline": "an OrderedDict loop with the leading-run rule, head first, 10,000 blocks, on lists of ids",
        "rounds": ROUNDS,
        "threads": 1,
        "cache_state": "traces loaded; every replay starts cold; rounds interleaved after one that does not count",
    }
    write_line({"benchmark": "cache_simulator", **facts, "results": results}, options.output)


def load(file: Path) -> BlockTrace:
    trace = load_trace(TraceFile(file, PromptText(Path(), "a trace of text")))
    return BlockTrace(np.frombuffer(trace.ids, dtype=np.int64), np.frombuffer(trace.starts, dtype=np.int64))


def ordered_dict(requests: Requests) -> int:
    """The baseline: leading-run hits of all requests."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for ids in requests:
        for block in ids:
            if block not in held:
                break
            hits += 1
        for block in ids:
            if block in held:
                held.move_to_end(block)
            else:
                held[block] = None
                if len(held) > CAPACITY:
                    held.popitem(last=False)
    return hits


def two_tiers(requests: Requests, chunk_blocks: int) -> Callable[[], object]:
    """Device pool and host tier; a chunk's key is that of its last block."""
    device, host = ENGINE.device, ENGINE.host
    assert device is not None
    assert host is not None
    rules = replace(device, computes_last=False)
    sizes = CacheSizes(CAPACITY * BLOCK, BLOCK, HOST_BLOCKS * BLOCK, chunk_blocks * BLOCK)
    footprints = [Footprint(len(ids) * BLOCK, len(ids) * BLOCK, ids, ids[chunk_blocks - 1 :: chunk_blocks]) for ids in requests]

    def run() -> None:
        simulator = BlockSimulator(rules, host, sizes)
        for footprint in footprints:
            simulator.run(footprint)

    return run


def measure(trace: BlockTrace) -> dict[str, Any]:
    """Every figure of one trace."""
    requests = list(trace.requests())
    assert replay(requests, CAPACITY, tail_first=False) == ordered_dict(requests) == hit_curve(trace, tail_first=False).hits_at(CAPACITY)
    functions: dict[str, Callable[[], object]] = {
        "ordered_dict": lambda: ordered_dict(requests),
        "one_tier_head_first": lambda: replay(requests, CAPACITY, tail_first=False),
        "one_tier_tail_first": lambda: replay(requests, CAPACITY, tail_first=True),
        **{f"two_tiers_chunks_of_{blocks}": two_tiers(requests, blocks) for blocks in CHUNK_BLOCKS},
        "all_capacities_head_first": lambda: hit_curve(trace, tail_first=False),
        "all_capacities_tail_first": lambda: hit_curve(trace, tail_first=True),
    }
    seconds = interleaved(functions)
    baseline = seconds["ordered_dict"]
    return {
        "accesses": trace.accesses,
        "median_s": {name: round(statistics.median(values), 4) for name, values in seconds.items()},
        "best_s": {name: round(min(values), 4) for name, values in seconds.items()},
        "speed_to_ordered_dict": {
            name: round(statistics.median(base / own for base, own in zip(baseline, values, strict=True)), 2)
            for name, values in seconds.items()
        },
    }


def interleaved(functions: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(ROUNDS + 1):
        for name, function in functions.items():
            begin = time.perf_counter()
            function()
            if number:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def measure_many(trace: BlockTrace) -> dict[str, Any]:
    """All capacities at once, of the trace repeated with fresh ids, at a quarter of ten million accesses and at all of them."""
    figures: dict[str, Any] = {}
    for accesses in (MANY // 4, MANY):
        repeated = repeat(trace, ceil_div(accesses, trace.accesses))
        begin = time.perf_counter()
        hit_curve(repeated, tail_first=True)
        figures[f"{repeated.accesses}_accesses_s"] = round(time.perf_counter() - begin, 2)
    return {**figures, "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)}


def measure_loading(file: Path, accesses: int) -> dict[str, Any]:
    """Reading and checking a trace file, as it is and repeated to ten million accesses; peak memory of the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.jsonl"
        write_repeated(file, large, ceil_div(MANY, accesses))
        return {name: loading(path) for name, path in (("conversation", file), ("many", large))}


def loading(file: Path) -> dict[str, Any]:
    """Load a file in a new Python; ``start_mib`` is what it takes before, imports included (Linux)."""
    code = (
        "import json, re, sys, time; sys.path[:0] = sys.argv[2:]; from cache_simulator import Path, load\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) // 1024\n"
        "before, begin = peak(), time.perf_counter(); trace = load(Path(sys.argv[1])); taken = time.perf_counter() - begin\n"
        "print(json.dumps({'accesses': trace.accesses, 's': round(taken, 2), 'start_mib': before, 'peak_mib': peak()}))"
    )
    command = [sys.executable, "-c", code, str(file), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"file_mib": round(file.stat().st_size / 2**20, 1), **json.loads(done.stdout)}


def write_repeated(file: Path, to: Path, times: int) -> None:
    """The trace ``times`` times, one after the other, each time with ids of its own."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    fresh, span = max(hash_id for line in lines for hash_id in line["hash_ids"]) + 1, lines[-1]["timestamp"]
    with to.open("w", encoding="utf-8") as out:
        for copy in range(times):
            for line in lines:
                ids = [hash_id + copy * fresh for hash_id in line["hash_ids"]]
                out.write(json.dumps({**line, "timestamp": line["timestamp"] + copy * span, "hash_ids": ids}) + "\n")


def repeat(trace: BlockTrace, times: int) -> BlockTrace:
    """The trace ``times`` times, each time with ids of its own."""
    fresh = int(trace.ids.max()) + 1
    ids = np.concatenate([trace.ids + copy * fresh for copy in range(times)])
    starts = np.concatenate([trace.starts[:-1] + copy * trace.accesses for copy in range(times)] + [np.array([len(ids)])])
    return BlockTrace(ids, starts)


if __name__ == "__main__":
    main()
