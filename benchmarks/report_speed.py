"""How long `kvbench report` and `kvbench compare` take on a log of many requests, and how much memory: the whole process, cold caches.

Makes run folders of 10,000, 100,000 and 1,000,000 requests (two arms, three passes, five repeats, predictions in every pass), two of each
size for `compare`, in a temporary folder that is removed. Needs 1.7 GB of disk. Wall and CPU seconds and the peak resident memory of each
command; the exponent is the slope of CPU seconds over the two largest sizes on logarithmic scales: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from kvbench.runs.run_folder import FORMAT
from lines import add_output, write_line

ARMS, PASSES, REPEATS = ("none", "cpu"), ("sequential", "repeat", "reverse"), 5
SIZES = (10_000, 100_000, 1_000_000)
PROMPT, CHUNK, LIMIT_S, LIMIT_GIB = 526, 512, 30.0, 4.0
LINE = (
    '{{"arm":"{arm}","repeat":{repeat},"pass":"{name}","pass_index":{index},"position":{position},"request_id":"{arm}-r{repeat}-p{index}-'
    '{position}","doc_id":{position},"prompt_tokens":526,"prompt_tokens_sent":526,"output_tokens":8,"cached_tokens_device":0,'
    '"cached_tokens_host":{host},"computed_tokens":{computed},"attribution":"engine","restore_ms":{restore},"compute_ms":{compute},'
    '"scheduled_s":{sent:.9f},"sent_s":{sent:.9f},"first_token_s":{first:.9f},"last_token_s":{last:.9f},"end_s":{last:.9f},'
    '"token_times_s":[{times}],"chunk_tokens":[1,1,1,1,1,1,1,1],"preemptions":0,"stalls":[],"error":null,"ttft_ms":{ttft:.9f}}}\n'
)


def make_run(path: Path, requests: int, seed: int) -> None:
    """A run folder of about ``requests`` requests, written as kvbench writes it."""
    rng = np.random.default_rng(seed)
    docs = requests // (len(ARMS) * len(PASSES) * REPEATS)
    path.mkdir()
    clock = 0.0
    with (path / "requests.jsonl").open("w", encoding="utf-8") as lines, (path / "passes.jsonl").open("w", encoding="utf-8") as passes:
        for repeat in range(REPEATS):
            for arm in ARMS:
                for index, name in enumerate(PASSES):
                    begin = clock
                    host = CHUNK if arm == "cpu" and index else 0
                    mood = 1 + 0.02 * rng.standard_normal()
                    for position, noise in enumerate(rng.lognormal(0, 0.05, docs)):
                        ttft = (15.0 if host else 95.0) * mood * noise
                        first = clock + ttft / 1e3
                        times = ",".join(f"{first + step / 100:.9f}" for step in range(8))
                        lines.write(
                            LINE.format(
                                arm=arm, repeat=repeat, name=name, index=index, position=position, host=host, computed=PROMPT - host,
                                restore=0.9 if host else 0.0, compute=ttft, sent=clock, first=first, last=first + 0.07, times=times,
                                ttft=ttft,
                            )
                        )  # fmt: skip
                        clock = first + 0.07
                    tokens = [0, host, PROMPT - host]
                    prediction = {
                        "profile": "engine", "device": 0, "host": host * docs, "computed": (PROMPT - host) * docs,
                        "requests": [tokens] * docs, "ttft_ms": [None] * docs, "rates": None, "exact": True,
                    }  # fmt: skip
                    record = {
                        "arm": arm, "repeat": repeat, "pass": name, "pass_index": index, "requests": docs, "failed": 0,
                        "wall_s": clock - begin, "counters_before": {}, "counters_after": {}, "peak_pool_tokens": None,
                        "evicted_tokens": None, "stored_tokens": None, "loaded_tokens": None, "prediction": prediction,
                    }  # fmt: skip
                    passes.write(json.dumps(record, separators=(",", ":")) + "\n")
    manifest = {
        "format": FORMAT, "kvbench": "benchmark", "created": "", "command": [], "status": "complete", "reasons": [], "profile": "engine",
        "config": {"experiment": "cyclic", "runner": "engine", "tier": list(ARMS), "repeats": REPEATS, "concurrency": 1, "seed": 0,
                   "output_tokens": 8, "passes": list(PASSES), "question": "same", "overlap": 0.0, "reuse": 1.0},
        "arms": [{"name": arm, "command": None} for arm in ARMS],
        "model": {"name": "tiny", "vocab": 2048, "bytes_per_token": 8192},
        "capacity": {"device_tokens": 1024, "block_size": 16, "host_tokens": {"none": None, "cpu": CHUNK * docs}, "chunk_tokens": 256},
        "workload": {"documents": docs, "document_tokens": [512] * docs, "document_names": None, "question_tokens": 14,
                     "working_set_tokens": 512 * docs, "requests_per_pass": docs},
        "working_set_ratio": docs / 2,
        "environment": {"cpu": "", "cores": 2, "memory_gib": 8.0, "os": "", "python": "", "packages": {}, "commit": None, "device": "cpu"},
    }  # fmt: skip
    (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def measure(*command: str) -> dict[str, float]:
    """Wall and CPU seconds and peak resident GiB of one command, as the system counts them for the finished process."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from kvbench.cli.main import main; sys.exit(main())", *command], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"kvbench {command[0]} ended with {process.returncode}")
    return {
        "wall_s": round(wall, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_gib": round(usage.ru_maxrss / 2**20, 3),
    }


def exponent(results: dict[int, dict[str, float]]) -> float:
    """The slope of CPU seconds over requests, both logarithmic, between the two largest sizes."""
    small, large = sorted(results)[-2:]
    return round(math.log(results[large]["cpu_s"] / results[small]["cpu_s"]) / math.log(large / small), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--folder", type=Path, help="where the logs are made (default: the system's temporary folder)")
    add_output(parser)
    options = parser.parse_args()
    results: dict[str, dict[int, dict[str, float]]] = {"report": {}, "compare": {}}
    for size in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            base, new = Path(folder) / "base", Path(folder) / "new"
            make_run(base, size, 1)
            make_run(new, size, 2)
            results["report"][size] = measure("report", str(base))
            results["compare"][size] = measure("compare", str(base), str(new))
            print(f"{size:>9,}", {name: found[size] for name, found in results.items()}, flush=True)
    largest = {name: found[max(found)] for name, found in results.items()}
    line: dict[str, Any] = {
        "benchmark": "report_speed",
        "baseline": f"{LIMIT_S:.0f} s and {LIMIT_GIB:.0f} GiB at 1,000,000 requests",
        "cache_state": "files in the page cache, as just written",
        "results": results,
        "exponent": {name: exponent(found) for name, found in results.items() if len(found) > 1},
        "holds": all(found["wall_s"] < LIMIT_S and found["peak_gib"] < LIMIT_GIB for found in largest.values()),
    }
    write_line(line, options.output)


if __name__ == "__main__":
    main()
