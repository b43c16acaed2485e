"""Two runs compared, as ``kvbench compare`` does."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.library.recorded_run import RecordedRun

if TYPE_CHECKING:  # scipy comes with it
    from kvbench.comparison.compare import Comparison

Side = str | PathLike[str] | RecordedRun


def compare(base: Side, new: Side, fail_on: Sequence[str] = (), min_effect: float | None = None, allow: Sequence[str] = ()) -> Comparison:
    """What changed from one run to another: a line for each arm, pass and metric, each with its verdict.

    Args:
        base: a run folder, a file that ``kvbench baseline`` wrote, or a run that was read.
        new: the same; the run that is judged.
        fail_on: thresholds, as ``kvbench compare --fail-on`` takes them.
        min_effect: the least share by which a metric must have changed; ``None``: 0.05.
        allow: what may differ between the runs, by field name.

    Raises:
        kvbench.errors.UsageError: one side cannot be read, a threshold is none, or the runs measured different things.
    """
    from kvbench.comparison.compare import MIN_EFFECT
    from kvbench.comparison.compare import compare as compared
    from kvbench.summary.trust import judged_side

    before, after = (judged_side(side.path if isinstance(side, RecordedRun) else Path(side)) for side in (base, new))
    return compared(before, after, min_effect=MIN_EFFECT if min_effect is None else min_effect, allow=allow, fail_on=fail_on)
