"""The noise known of a run: by how much the same work differed within it. The largest is the margin of all that is said of its times.

Three kinds: repeats of a pass; passes of the baseline that computed every token, and as many; and an arm that was faster than a baseline
without a tier although its tier gave nothing and it computed no less, as a tier then only adds work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvbench.analysis.known_noise import KnownNoise
from kvbench.analysis.latency import timed
from kvbench.analysis.noise import spread
from kvbench.analysis.run_view import RunView

Values = Sequence[float] | npt.NDArray[np.float64]


def of_repeats(places: Iterable[tuple[str, Values]]) -> Iterator[KnownNoise]:
    """The spread of what repeats gave, place by place; none of a place with one repeat."""
    for place, values in places:
        if (share := spread(values)) is not None:
            yield KnownNoise(share, "repeats", f"repeats of {place}")


def of_tiers(view: RunView, first_judged: int) -> Iterator[KnownNoise]:
    """The noise of TTFT p50 in a run whose arms are tiers; ``first_judged``: index of the first pass in which a tier can hit."""
    repeats = _repeats(view)
    passes = {key: pd.concat(found) for key, found in repeats.items()}
    p50 = {key: float(rows["ttft_ms"].median()) for key, rows in passes.items()}
    by_repeat = {key: [float(rows["ttft_ms"].median()) for rows in found] for key, found in repeats.items()}
    yield from of_repeats((f"arm {arm}, pass {view.labels[index]}", medians) for (arm, index), medians in by_repeat.items())
    baseline = view.info.baseline or ""
    alike: dict[tuple[int, float], list[int]] = {}
    for (arm, index), rows in passes.items():
        if arm == baseline and (rows[["device", "host"]] == 0).all(axis=None):
            alike.setdefault((len(rows), float(rows["computed"].sum())), []).append(index)
    for same in alike.values():
        times = [p50[baseline, index] for index in same]
        if len(same) > 1 and min(times) > 0:
            where = f"arm {baseline}: passes {', '.join(view.labels[index] for index in same)}"
            yield KnownNoise(max(times) / min(times) - 1, "passes", where)
    if view.info.of_log or view.has_tier(baseline):  # the arms of a log may be anything
        return
    for (arm, index), rows in passes.items():
        base = passes.get((baseline, index))
        if not view.has_tier(arm) or base is None or len(base) != len(rows) or not 0 < p50[arm, index] < p50[baseline, index]:
            continue
        if index < first_judged or _only_adds_work(base, rows):
            where = f"arm {arm} faster than {baseline} in pass {view.labels[index]}, with no token from its tier"
            yield KnownNoise(p50[baseline, index] / p50[arm, index] - 1, "arms", where)


def _repeats(view: RunView) -> dict[tuple[str, int], list[pd.DataFrame]]:
    """The timed requests of each repeat by arm and pass index; of repeats that finished the pass, where a run says which did."""
    done = {(line["arm"], line["pass_index"], line["repeat"]) for line in view.passes}
    found: dict[tuple[str, int], list[pd.DataFrame]] = {}
    groups: dict[Any, pd.DataFrame] = dict(iter(timed(view.frame).groupby(["arm", "pass_index", "repeat"])))
    for (arm, index, repeat), rows in groups.items():
        if not done or (arm, index, repeat) in done:
            found.setdefault((arm, index), []).append(rows)
    return found


def _only_adds_work(base: pd.DataFrame, rows: pd.DataFrame) -> bool:
    """Whether the tier gave nothing and no less was computed; not where that is unknown."""
    computed, of_base = (table["computed"].sum(skipna=False) for table in (rows, base))
    return bool((rows["host"] == 0).all() and computed >= of_base)
