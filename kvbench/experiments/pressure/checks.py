"""Experiment ``pressure``: reasons not to believe a run, and notes on how to read it."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_view import RunView
from kvbench.analysis.stalls import wrong_stalls
from kvbench.experiments.at_once.checks import EXACT, differences, numbered, unfinished, wrong_lengths

WHOLE = {
    "ample": "has room for every request at its end",
    "reserve": "keeps room for every answer from the start",
}
"""Arms in which nothing can run short, and why."""


def reasons(view: RunView) -> Iterator[str]:
    """Why not to trust the run, one sentence each."""
    for row in view.rows["pressure"]:
        if row.arm in WHOLE and row.preemptions:
            were = "was" if row.preemptions == 1 else "were"
            yield f"arm {row.arm} {WHOLE[row.arm]}, and there {were} {numbered(row.preemptions, 'preemption')} all the same"
    yield from unfinished(view)
    yield from wrong_lengths(view)
    wrong = list(wrong_stalls(view.run))
    if wrong:
        yield f"parts of a stall do not sum to the gap between its tokens, in {numbered(len(wrong), 'request')} (the first, {wrong[0]})"
    if view.info.dtype == EXACT:
        yield from differences(view, f"which {EXACT} does not explain: a token was computed from wrong KV")


def notes(view: RunView) -> Iterator[str]:
    """What a reader must know and what is no fault, one sentence each."""
    found = view.rows["pressure"]
    if view.info.fits:
        sizes = f"the pool ({view.info.device_tokens:,}) holds all requests at their end ({view.info.working_set:,})"
        yield f"fits: {sizes}: nothing runs short; lower --kv-tokens, or raise --requests or --output-tokens"
    for row in found:
        if row.swap_full:
            full = f"{row.swap_full:,} of {row.preemptions:,}"
            yield f"the swap space was full at {full} preemptions, which were recomputed instead; raise --swap-gib"
    if view.info.dtype != EXACT:
        on_engine = view.info.config.get("runner") == "engine"
        remedy = f"--dtype {EXACT} tells that from a fault" if on_engine else "it is rare with --dtype float32"
        near = "with other requests in a batch the last bits of a logit differ, and a near tie of two tokens may turn"
        yield from differences(view, f"{near} (in {view.info.dtype}); {remedy}")
