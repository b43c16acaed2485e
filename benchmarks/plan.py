"""`kvbench plan`: wall and CPU time of the process, by documents, against importing what it cannot do without. No torch, no server.

Run: python benchmarks/plan.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from lines import add_output, write_line

BASELINE = "import numpy, pydantic, typer, rich"
DOCUMENTS = (10, 100)


def commands() -> dict[str, list[str]]:
    """What is timed; the pool grows with the documents, so that the working set stays 2.3 times the pool."""
    program = str(Path(sys.executable).with_name("kvbench"))
    plans = {f"plan_{docs}": [program, "plan", f"--docs={docs}", f"--kv-tokens={docs * 2152}", "--json"] for docs in DOCUMENTS}
    return {"import": [sys.executable, "-c", BASELINE], **plans}


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process."""
    begin, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return time.perf_counter() - begin, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7, help="interleaved rounds")
    add_output(parser)
    options = parser.parse_args()
    rounds = [{name: timed(command) for name, command in commands().items()} for _ in range(options.pairs)]
    results = {
        name: {
            "wall_s": round(statistics.median(one[name][0] for one in rounds), 3),
            "cpu_s": round(statistics.median(one[name][1] for one in rounds), 3),
            "cpu_ratio": round(statistics.median(one[name][1] / one["import"][1] for one in rounds), 2),
        }
        for name in rounds[0]
    }
    facts = {"baseline": f'python -c "{BASELINE}"', "pairs": len(rounds), "threads": 1, "cache_state": "files in the page cache"}
    write_line({"benchmark": "plan", **facts, "results": results}, options.output)


if __name__ == "__main__":
    main()
