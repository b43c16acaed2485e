"""Experiment ``pressure``: reasons not to believe a run, and notes on how to read it."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_info import Setup
from kvbench.analysis.stalls import wrong_stalls
from kvbench.experiments.at_once.checks import EXACT, differences, dtype_of, numbered, unfinished, wrong_lengths
from kvbench.experiments.pressure.metrics import NAME, rows
from kvbench.runs.run_folder import Run

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
            yield f"arm {row.arm} {WHOLE[row.arm]}, and there {were} {numbered(row.preemptions, 'preemption')} all the same"
    yield from unfinished(run, setup)
    yield from wrong_lengths(run)
    wrong = list(wrong_stalls(run))
    if wrong:
        yield f"parts of a stall do not sum to the gap between its tokens, in {numbered(len(wrong), 'request')} (the first, {wrong[0]})"
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
