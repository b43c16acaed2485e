"""Experiment ``fragmentation``: reasons not to believe a run, and notes on how to read it."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_info import Setup
from kvbench.experiments.at_once.checks import EXACT, differences, dtype_of, unfinished, wrong_lengths
from kvbench.experiments.fragmentation.metrics import NAME, rows
from kvbench.runs.run_folder import Run


def reasons(run: Run, setup: Setup) -> Iterator[str]:
    """Why not to trust the run, one sentence each; none for another experiment."""
    if setup.config.get("experiment") != NAME:
        return
    for row in rows(run, setup):
        if row.arm.startswith("reserve-") and row.preemptions:
            yield f"arm {row.arm} keeps room for every answer from the start, and there were {row.preemptions:,} preemptions all the same"
    yield from unfinished(run, setup)
    yield from wrong_lengths(run)
    if dtype_of(run) == EXACT:
        yield from differences(run, setup, f"which {EXACT} does not explain: a token was computed from wrong KV")


def notes(run: Run, setup: Setup) -> Iterator[str]:
    """What a reader must know and what is no fault, one sentence each; none for another experiment."""
    if setup.config.get("experiment") != NAME:
        return
    never = [row.arm for row in rows(run, setup) if row.steps and not row.short_steps]
    if never:
        yield f"every request found room at once in {', '.join(never)}, so nothing can be said of a full pool: raise --requests"
    if cut := (run.manifest.get("workload") or {}).get("cut_requests"):
        total = run.manifest["workload"]["requests_per_pass"]
        yield f"{cut:,} of {total:,} requests were cut to --max-length {setup.config['max_length']}"
    if dtype_of(run) != EXACT:
        near = "with other requests in a batch the last bits of a logit differ, and a near tie of two tokens may turn"
        yield from differences(run, setup, f"{near} (in {dtype_of(run)}); --dtype {EXACT} tells that from a fault")
