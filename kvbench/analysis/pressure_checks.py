"""Experiment ``pressure``: reasons not to believe a run, and notes on how to read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvbench.analysis.pressure import NAME, different_outputs, rows
from kvbench.analysis.setup import Setup
from kvbench.analysis.stalls import wrong_stalls
from kvbench.runfolder import Run

EXACT = "float64"
"""A batch of other sequences changes the last bits of a logit. In float64 two tokens would have to be within some 1e-13 of each other for
that to turn one into the other, which in a run's thousands of tokens does not happen; in float32 (1e-5) now and then it does."""

WHOLE = {
    "ample": "has room for every request at its end",
    "reserve": "keeps room for every answer from the start",
}
"""Arms in which nothing can run short, and why."""


def reasons(run: Run, setup: Setup) -> Iterator[str]:
    """Why not to trust the run, one sentence each; none for another experiment."""
    if setup.config.get("experiment") != NAME:
        return
    for row in rows(run, setup):
        if row.arm in WHOLE and row.preemptions:
            were = "was" if row.preemptions == 1 else "were"
            yield f"arm {row.arm} {WHOLE[row.arm]}, and there {were} {_counted(row.preemptions, 'preemption')} all the same"
    yield from unfinished(run, setup)
    yield from wrong_lengths(run)
    wrong = list(wrong_stalls(run))
    if wrong:
        yield f"parts of a stall do not sum to the gap between its tokens, in {_counted(len(wrong), 'request')} (the first, {wrong[0]})"
    if dtype_of(run) == EXACT:
        yield from differences(run, setup, f"which {EXACT} does not explain: a token was computed from wrong KV")


def notes(run: Run, setup: Setup) -> Iterator[str]:
    """What a reader must know and what is no fault, one sentence each; none for another experiment."""
    if setup.config.get("experiment") != NAME:
        return
    found = rows(run, setup)
    if setup.fits:
        sizes = f"the pool ({setup.device_tokens:,}) holds all requests at their end ({setup.working_set:,})"
        yield f"fits: {sizes}: nothing runs short; lower --kv-tokens, or raise --requests or --output-tokens"
    for row in found:
        if row.swap_full:
            full = f"{row.swap_full:,} of {row.preemptions:,}"
            yield f"the swap space was full at {full} preemptions, which were recomputed instead; raise --swap-gib"
    if dtype_of(run) != EXACT:
        on_engine = setup.config.get("runner") == "engine"
        remedy = f"--dtype {EXACT} tells that from a fault" if on_engine else "it is rare with --dtype float32"
        near = "with other requests in a batch the last bits of a logit differ, and a near tie of two tokens may turn"
        yield from differences(run, setup, f"{near} (in {dtype_of(run)}); {remedy}")


def unfinished(run: Run, setup: Setup) -> Iterator[str]:
    """Passes that ended without every request's record."""
    asked = (run.manifest.get("workload") or {}).get("requests_per_pass")
    for line in run.passes:
        if asked is not None and line["requests"] != asked:
            yield f"arm {line['arm']}, repeat {line['repeat']}: {line['requests']:,} of {asked:,} requests came to an end"


def wrong_lengths(run: Run) -> Iterator[str]:
    """Requests that were not sent, or not answered, as long as the workload says."""
    workload = run.manifest.get("workload") or {}
    asked = list(zip(workload.get("prompt_tokens") or (), workload.get("output_tokens") or (), strict=True))
    wrong = [
        line
        for line in run.requests
        if asked and line["error"] is None and (line["prompt_tokens_sent"], line["output_tokens"]) != asked[line["position"]]
    ]
    if wrong:
        first = wrong[0]
        found, wanted = (first["prompt_tokens_sent"], first["output_tokens"]), asked[first["position"]]
        yield (
            f"prompt and output are not as long as asked for, in {_counted(len(wrong), 'request')} "
            f"(the first, {first['request_id']}: {_pair(found)}, not {_pair(wanted)})"
        )


def differences(run: Run, setup: Setup, why: str) -> Iterator[str]:
    """Where an arm gave other tokens than the baseline, by arm and repeat."""
    found: dict[tuple[str, int], list[str]] = {}
    for line, _ in different_outputs(run, setup):
        found.setdefault((line["arm"], line["repeat"]), []).append(str(line["request_id"]))
    for (arm, repeat), names in found.items():
        requests = _counted(len(names), "request")
        yield f"arm {arm} gave other tokens than {setup.baseline} in {requests} of repeat {repeat} (the first, {names[0]}): {why}"


def dtype_of(run: Run) -> str:
    """The weights' and the KV's type, for messages."""
    model: dict[str, Any] = run.manifest.get("model") or {}
    return str(model.get("dtype") or "an unknown dtype")


def _pair(lengths: tuple[Any, Any]) -> str:
    return f"{lengths[0]} + {lengths[1]}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
