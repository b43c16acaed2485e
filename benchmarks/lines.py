"""The JSON line in which a benchmark ends."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from kvbench.runs.machine import describe_machine


def add_output(parser: argparse.ArgumentParser) -> None:
    """The option that all benchmarks have."""
    parser.add_argument("-o", "--output", type=Path, help="append the JSON line to this file too")


def write_line(line: dict[str, Any], output: Path | None) -> None:
    """Print the line with the machine behind it, and append it to a file if there is one."""
    text = json.dumps({**line, "machine": describe_machine()})
    print(text)
    if output:
        with output.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
