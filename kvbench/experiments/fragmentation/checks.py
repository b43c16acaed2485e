"""Experiment ``fragmentation``: reasons not to believe a run, and notes on how to read it."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_view import RunView
from kvbench.experiments.at_once.checks import EXACT, differences, unfinished, wrong_lengths


def reasons(view: RunView) -> Iterator[str]:
    """Why not to trust the run, one sentence each."""
    for row in view.rows["fragmentation"]:
        if row.arm.startswith("reserve-") and row.preemptions:
            yield f"arm {row.arm} keeps room for every answer from the start, and there were {row.preemptions:,} preemptions all the same"
    yield from unfinished(view)
    yield from wrong_lengths(view)
    if view.info.dtype == EXACT:
        yield from differences(view, f"which {EXACT} does not explain: a token was computed from wrong KV")


def notes(view: RunView) -> Iterator[str]:
    """What a reader must know and what is no fault, one sentence each."""
    never = [row.arm for row in view.rows["fragmentation"] if row.steps and not row.short_steps]
    if never:
        yield f"every request found room at once in {', '.join(never)}, so nothing can be said of a full pool: raise --requests"
    if cut := view.info.workload.get("cut_requests"):
        total = view.info.requests_per_pass
        yield f"{cut:,} of {total:,} requests were cut to --max-length {view.info.config['max_length']}"
    if view.info.dtype != EXACT:
        near = "with other requests in a batch the last bits of a logit differ, and a near tie of two tokens may turn"
        yield from differences(view, f"{near} (in {view.info.dtype}); --dtype {EXACT} tells that from a fault")
