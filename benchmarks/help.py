"""`kvbench --help`: whole wall time of the process against `python -c "import typer, rich"`. Target: at most 1.6 times.

Run: python benchmarks/help.py
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from lines import add_output, write_line

PAIRS = 15
COMMANDS = {
    "import": [sys.executable, "-c", "import typer, rich"],
    "help": [str(Path(sys.executable).with_name("kvbench")), "--help"],
    "run_help": [str(Path(sys.executable).with_name("kvbench")), "run", "--help"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_output(parser)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(PAIRS):
        for name, command in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - begin)
    ratio = {
        name: round(statistics.median(own / base for own, base in zip(values, seconds["import"], strict=True)), 2)
        for name, values in seconds.items()
        if name != "import"
    }
    median = {name: round(statistics.median(values) * 1e3, 1) for name, values in seconds.items()}
    facts = {"baseline": 'python -c "import typer, rich"', "pairs": PAIRS, "cache_state": "files in the page cache"}
    write_line({"benchmark": "help", **facts, "results": {"ratio": ratio, "median_ms": median}}, options.output)


if __name__ == "__main__":
    main()
