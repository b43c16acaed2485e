"""How often `kvbench compare` is wrong: false regressions where nothing changed (A/A), and slowdowns that it finds.

Made runs (two arms, three passes, ten documents, three repeats, a base and a new run) with noise at four levels: the whole run, a repeat of
an arm, a pass of it, and the request, which is skewed (exponential) and has outliers. Passes that hit are noisier by half, as measured; in
"as real runs differ" and "a machine that drifts" the whole run is as slow or fast in each pass as real runs were (`components` of a line
with `--runs`). The base is one run, or as many as `--base-runs` says. A trial is one comparison with its defaults; it counts if any figure
is called a regression.

`--runs DIR...` prints the same components of real runs of one setup, to judge the made ones by, and how often they regress against each
other. The last line is JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvbench.analysis.request_table import FIELDS, request_frame
from kvbench.analysis.statistics import Statistics
from kvbench.comparison.baseline import Baseline, Cell, reduce
from kvbench.comparison.compare import compare
from kvbench.metrics.repeat import Repeat
from kvbench.runs.run_folder import read_run
from lines import add_output, write_line

ARMS, PASSES, DOCS = ("none", "cpu"), ("sequential", "repeat", "reverse"), 10
COMPUTED_MS, HIT_MS, PARTIAL_MS = 100.0, 15.0, 70.0
NOISIER_HITS = 1.5
Times = npt.NDArray[np.float64]
"""TTFT in ms by repeat, arm, pass and document."""

RUN_AS_MEASURED = ((0.016, 0.018, 0.024), (0.043, 0.106, 0.077))
"""How much five real runs differed, by arm and pass (reports/compare-2026-11-30.jsonl): a run that was slow was so in all of them."""

RUN_AS_DRIFTING = ((0.069, 0.068, 0.075), (0.049, 0.051, 0.048))
"""The same of twenty real runs on a machine whose other users came and went (reports/compare-2026-11-30.jsonl)."""


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the logarithm, of a run by arm and pass or in all; shares: outliers, repeats that a burst slows."""

    run: float | tuple[tuple[float, ...], ...]
    repeat: float
    of_pass: float
    request: float = 0.03
    outliers: float = 0.03
    bursts: float = 0.0


NOISE = {
    "quiet": Noise(0.01, 0.015, 0.01),
    "seen here": Noise(0.02, 0.025, 0.02),
    "seen here, runs differ more": Noise(0.04, 0.025, 0.02),
    "as real runs differ": Noise(RUN_AS_MEASURED, 0.03, 0.02),
    "a machine that drifts": Noise(RUN_AS_DRIFTING, 0.06, 0.045),
    "bursts": Noise(0.01, 0.02, 0.01, bursts=0.15),
    "requests vary": Noise(0.01, 0.02, 0.01, request=0.08, outliers=0.05),
}


def pattern() -> Times:
    """The times without noise: all computed, all hit on the tier, and half of the documents on the device when read in reverse."""
    times = np.full((len(ARMS), len(PASSES), DOCS), COMPUTED_MS)
    times[1, 1:] = HIT_MS
    times[0, 2, :4], times[0, 2, 4] = HIT_MS, PARTIAL_MS
    return times


def draw(noise: Noise, repeats: int, rng: np.random.Generator) -> Times:
    """One run's times."""
    times = pattern()
    hits = np.where(times.mean(axis=2, keepdims=True) < COMPUTED_MS / 2, NOISIER_HITS, 1.0)
    shape, of_arm = (repeats, *times.shape), (repeats, len(ARMS), 1, 1)
    log = rng.standard_normal() * (noise.run * hits if isinstance(noise.run, float) else np.array(noise.run)[:, :, None])
    log = log + noise.repeat * rng.standard_normal(of_arm) * hits
    log = log + np.where(rng.random(of_arm) < noise.bursts, rng.exponential(0.3, of_arm), 0)
    log = log + noise.of_pass * rng.standard_normal((repeats, *times.shape[:2], 1)) * hits
    log = log + noise.request * (rng.exponential(1, shape) - 1) * hits
    return np.asarray(times * np.exp(log + np.where(rng.random(shape) < noise.outliers, rng.exponential(0.5, shape), 0)))


def as_baseline(*runs: Times) -> Baseline:
    """Runs of these times, as :func:`kvbench.comparison.baseline.reduce` makes it of run folders."""
    tokens = np.tile([0, 0, 526], (DOCS, 1))

    def cell(place: int, index: int) -> Cell:
        of_runs = [times[:, place, index] for times in runs]
        every = tuple(repeat for run, times in enumerate(of_runs) for repeat in repeats(times, run))
        return Cell(ARMS[place], PASSES[index], index, Statistics(n=DOCS * len(every)), None, every, tokens)

    cells = tuple(cell(place, index) for place in range(len(ARMS)) for index in range(len(PASSES)))
    return Baseline("made", None, None, "complete", (), True, {}, {}, {}, cells, len(runs))


def repeats(times: Times, run: int) -> Iterator[Repeat]:
    """The repeats of one pass of one arm, from its times by repeat and document."""
    for number, (p50, mean) in enumerate(zip(np.median(times, axis=1).tolist(), times.mean(axis=1).tolist(), strict=True)):
        yield Repeat(number, DOCS, 0, p50, mean, None, None, 526 * DOCS, 0, 0, 526 * DOCS, 0, run)


def rates(noise: Noise, base_runs: int, repeated: int, trials: int, slowdown: float, seed: int) -> dict[str, float]:
    """Share of trials with a regression: nothing changed; everything slower; only the cpu arm's second pass slower."""
    rng = np.random.default_rng(seed)
    same = np.ones((1, len(ARMS), len(PASSES), 1))
    one_pass = same.copy()
    one_pass[0, 1, 1] += slowdown
    factors = {"nothing changed": same, "everything slower": same * (1 + slowdown), "one pass slower": one_pass}
    found = dict.fromkeys(factors, 0)
    for _ in range(trials):
        base, new = as_baseline(*(draw(noise, repeated, rng) for _ in range(base_runs))), draw(noise, repeated, rng)
        for name, factor in factors.items():
            found[name] += bool(compare(base, as_baseline(np.asarray(new * factor))).regressions)
    return {name: round(count / trials, 4) for name, count in found.items()}


def components(folders: list[Path]) -> dict[str, Any]:
    """Noise of real runs of one setup: standard deviations of the logarithm by arm and pass, and regressions of each run against each."""
    frame = pd.concat([request_frame(read_run(folder, FIELDS)).assign(run=folder.name) for folder in folders])
    frame = frame.assign(log=np.log(frame["ttft_ms"]))
    medians = frame.groupby(["arm", "pass", "run", "repeat"])["log"].median().reset_index()
    result: dict[str, Any] = {}
    for (arm, name), rows in medians.groupby(["arm", "pass"]):
        by_run = rows.groupby("run")["log"]
        within, between = float(by_run.var(ddof=1).mean()), float(by_run.mean().var(ddof=1))
        run = max(0.0, between - within / rows["repeat"].nunique())
        result[f"{arm}, {name}"] = {"run": round(run**0.5, 3), "repeat": round(within**0.5, 3)}
    runs = [read_run(folder, FIELDS) for folder in folders]
    pairs = [bool(compare(base, new).regressions) for base, new in permutations(map(reduce, runs), 2)]
    others = [bool(compare(reduce(*(other for other in runs if other is not run)), reduce(run)).regressions) for run in runs]
    return {
        "components": result,
        "pairs": len(pairs),
        "regressions": sum(pairs),
        "against all others": len(others),
        "regressions against all others": sum(others),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000, help="0: only --runs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--base-runs", type=int, nargs="+", default=[1, 5], help="runs of which the base is made")
    parser.add_argument("--slowdown", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="real runs of one setup on one machine")
    add_output(parser)
    options = parser.parse_args()
    results: dict[str, dict[int, dict[str, float]]] = {}
    for name, noise in NOISE.items() if options.trials else ():
        results[name] = {}
        for runs in options.base_runs:
            found = rates(noise, runs, options.repeats, options.trials, options.slowdown, options.seed)
            results[name][runs] = found
            print(f"{name}, base of {runs}: {found}", flush=True)
    line = {
        "benchmark": "compare_errors",
        "baseline": "nothing changed: at most 0.05; everything slower: at least 0.8",
        "trials": options.trials,
        "repeats": options.repeats,
        "slowdown": options.slowdown,
        "noise": {name: asdict(noise) for name, noise in NOISE.items()},
        "results": results,
        "real_runs": components(options.runs) if options.runs else None,
    }
    write_line(line, options.output)


if __name__ == "__main__":
    main()
