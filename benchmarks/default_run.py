"""`kvbench run` with its defaults: whole wall time of the process. Target: under 120 s on 2 cores.

Run: python benchmarks/default_run.py
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lines import add_output, write_line

RUNS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_output(parser)
    options = parser.parse_args()
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
    write_line({"benchmark": "default_run", "baseline": "120 s", "cache_state": "cold", "results": result}, options.output)


if __name__ == "__main__":
    main()
