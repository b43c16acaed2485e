"""Checks that experiments of requests at once have in common: every request ended, as long as asked, with the tokens of the first arm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvbench.analysis.run_view import RunView
from kvbench.experiments.at_once.metrics import Line, digests_known

EXACT = "float64"
"""A batch of other sequences changes the last bits of a logit. In float64 two tokens would have to be within some 1e-13 of each other for
that to turn one into the other, which in a run's thousands of tokens does not happen; in float32 (1e-5) now and then it does."""


def unfinished(view: RunView) -> Iterator[str]:
    """Passes that ended without every request's record."""
    asked = view.info.requests_per_pass
    for line in view.passes:
        if asked is not None and line["requests"] != asked:
            yield f"arm {line['arm']}, repeat {line['repeat']}: {line['requests']:,} of {asked:,} requests came to an end"


def wrong_lengths(view: RunView) -> Iterator[str]:
    """Requests that were not sent, or not answered, as long as the workload says."""
    workload = view.info.workload
    asked = list(zip(workload.get("prompt_tokens") or (), workload.get("output_tokens") or (), strict=True))
    wrong = [
        line
        for line in view.requests
        if asked and line["error"] is None and (line["prompt_tokens_sent"], line["output_tokens"]) != asked[line["position"]]
    ]
    if wrong:
        first = wrong[0]
        found, wanted = (first["prompt_tokens_sent"], first["output_tokens"]), asked[first["position"]]
        yield (
            f"prompt and output are not as long as asked for, in {numbered(len(wrong), 'request')} "
            f"(the first, {first['request_id']}: {_pair(found)}, not {_pair(wanted)})"
        )


def differences(view: RunView, why: str) -> Iterator[str]:
    """Where an arm gave other tokens than the baseline, by arm and repeat."""
    found: dict[tuple[str, int], list[str]] = {}
    for line, _ in _different_outputs(view):
        found.setdefault((line["arm"], line["repeat"]), []).append(str(line["request_id"]))
    for (arm, repeat), names in found.items():
        requests = numbered(len(names), "request")
        yield f"arm {arm} gave other tokens than {view.info.baseline} in {requests} of repeat {repeat} (the first, {names[0]}): {why}"


def _different_outputs(view: RunView) -> Iterator[tuple[Line, Line]]:
    """Requests whose tokens are not those that the baseline arm gave in the same repeat, with the baseline's request."""
    base = {(line["repeat"], line["position"]): line for line in view.requests if line["arm"] == view.info.baseline}
    for line in view.requests:
        other = base.get((line["repeat"], line["position"]))
        if other is not None and digests_known(line, other) and line["output_digest"] != other["output_digest"]:
            yield line, other


def _pair(lengths: tuple[Any, Any]) -> str:
    return f"{lengths[0]} + {lengths[1]}"


def numbered(count: int, noun: str) -> str:
    """A count with its noun, for messages."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
