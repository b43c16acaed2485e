"""What experiments of requests at once have in common: rates, counters, outputs that are compared, and the pool's use step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from kvbench.runs.run_folder import Run, read_usage

Line = Mapping[str, Any]
PassKey = tuple[str, int, int]
"""Arm, repeat and pass index."""


def output_rates(requests: Iterable[Line], passes: Iterable[Line]) -> dict[int, float]:
    """Output tokens a second of each repeat that ended, by repeat; requests and passes of one arm, and of one pass."""
    tokens: Counter[int] = Counter()
    for line in requests:
        if line["error"] is None:
            tokens[line["repeat"]] += line["output_tokens"] or 0
    return {line["repeat"]: tokens[line["repeat"]] / line["wall_s"] for line in passes if line["wall_s"]}


def counted(passes: Sequence[Line]) -> dict[str, int]:
    """What each counter grew by in a pass, in the mean; those only that every pass has."""
    names = set.intersection(*(set(line["counters_after"]) for line in passes)) if passes else set()
    return {
        name: round(fmean(line["counters_after"][name] - line["counters_before"].get(name, 0) for line in passes)) for name in sorted(names)
    }


def digests_known(line: Line, other: Line) -> bool:
    """Whether the outputs of two requests can be compared."""
    return line.get("output_digest") is not None and other.get("output_digest") is not None


def usage_by_pass(run: Run) -> dict[PassKey, list[Line]]:
    """The pool's use after each step; the steps of a pass lie between its first send and its last end."""
    spans: dict[PassKey, tuple[float, float]] = {}
    for line in run.requests:
        key = (line["arm"], line["repeat"], line["pass_index"])
        begin, end = spans.get(key, (line["scheduled_s"], line["end_s"]))
        spans[key] = min(begin, line["scheduled_s"]), max(end, line["end_s"])
    found: dict[PassKey, list[Line]] = {key: [] for key in spans}
    for step in read_usage(run.path):
        within = next((key for key, (begin, end) in spans.items() if begin <= step["time_s"] <= end), None)
        if within is not None:
            found[within].append(step)
    return found
