"""Whether a run folder is to be trusted, as its report says: for commands that take it for a base or compare it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kvbench.analysis.request_table import FIELDS
from kvbench.analysis.run_info import RunInfo
from kvbench.comparison.baseline import Baseline, reduce
from kvbench.comparison.baseline_file import read_side
from kvbench.experiments.readings import ExperimentView, reading_of
from kvbench.runs.run_folder import Run, read_manifest, read_run
from kvbench.summary import validity
from kvbench.summary.controls import Controls, read_controls


def reasons_of(view: ExperimentView, controls: Controls) -> tuple[str, ...]:
    """Why not to trust a run: what its manifest says, what is found in its files now, and what its controls say."""
    recorded = view.info.reasons if view.info.status == "invalid" else ()
    return tuple(dict.fromkeys([*recorded, *validity.reasons(view), *controls.reasons]))


def read_judged(path: Path) -> Run:
    """A run folder, as far as comparisons and checks need its requests. An invalid one has the status ``invalid``, with the reasons.

    Raises:
        UsageError: as :func:`kvbench.runs.run_folder.read_run`.
    """
    checked = reading_of(RunInfo(read_manifest(path)).experiment).checked
    run = read_run(path, None if checked is None else (*FIELDS, *validity.CHECKED, *checked))
    view = ExperimentView(run)
    reasons = reasons_of(view, read_controls(view))
    return replace(run, manifest={**run.manifest, "status": "invalid", "reasons": list(reasons)}) if reasons else run


def judged_side(path: Path) -> Baseline:
    """One side of a comparison: a folder judged as its report judges it, or a file of ``kvbench baseline``.

    Raises:
        UsageError: it is neither.
    """
    return reduce(read_judged(path)) if path.is_dir() else read_side(path)
