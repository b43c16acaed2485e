"""`kvbench run` with its defaults: whole wall time of the process. Target: under 120 s on 2 cores.

Run: python benchmarks/default_run.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kvbench.environment import describe_machine

RUNS = 3


def main() -> None:
    seconds = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            subprocess.run(
                [Path(sys.executable).with_name("kvbench"), "run", "--quiet", "--out", f"{folder}/run"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            seconds.append(round(time.perf_counter() - begin, 1))
    result = {"median_s": statistics.median(seconds), "all_s": seconds}
    print(
        json.dumps(
            {"benchmark": "default_run", "baseline": "120 s", "cache_state": "cold", "results": result, "machine": describe_machine()}
        )
    )


if __name__ == "__main__":
    main()
