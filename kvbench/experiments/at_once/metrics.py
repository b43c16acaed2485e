"""What experiments of requests at once have in common: rates, counters, and outputs that are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

Line = Mapping[str, Any]


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
