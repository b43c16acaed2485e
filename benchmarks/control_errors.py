"""How often `--controls` is wrong: alarms where the arms are equal, and a gain that is none of the tier's and that it finds.

Made controls of two equal arms: repeats of a pass over as many documents as the default pool holds, with the noise of
`compare_errors.py`, and twice that; everything is computed where nothing is read again, and hits where everything fits, which is noisier by
half. A trial is one run with both controls; it counts if either ends it with exit code 4. `injected`: the baseline made slower by `--gain`
in both. The last line is JSON.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

import numpy as np

from compare_errors import NOISE, NOISIER_HITS, Noise, Times
from kvbench.runs.run_folder import LEAST_CONTROL_REPEATS
from kvbench.summary.controls import Verdict, judge
from lines import add_output, write_line

DOCS = 4


def draw(noise: Noise, repeats: int, factor: float, rng: np.random.Generator) -> Times:
    """Logarithms of TTFT by repeat, arm and document; what the whole run adds, both arms have."""
    of_arm, of_request = (repeats, 2, 1), (repeats, 2, DOCS)
    log = noise.repeat * rng.standard_normal(of_arm) * factor
    log = log + np.where(rng.random(of_arm) < noise.bursts, rng.exponential(0.3, of_arm), 0)
    log = log + noise.of_pass * rng.standard_normal(of_arm) * factor
    log = log + noise.request * (rng.exponential(1, of_request) - 1) * factor
    return np.asarray(log + np.where(rng.random(of_request) < noise.outliers, rng.exponential(0.5, of_request), 0))


def rates(noise: Noise, scale: float, repeats: int, trials: int, gain: float, seed: int) -> dict[str, float]:
    """Share of runs that end with exit code 4."""
    rng = np.random.default_rng(seed)
    scaled = Noise(0.0, noise.repeat * scale, noise.of_pass * scale, noise.request * scale, noise.outliers, noise.bursts)
    found = {"equal arms": 0, "injected": 0}
    for _ in range(trials):
        controls = [np.median(draw(scaled, repeats, factor, rng), axis=2) for factor in (1.0, NOISIER_HITS)]
        for name, shift in (("equal arms", 0.0), ("injected", np.log1p(gain))):
            found[name] += any(judge(medians + np.array([shift, 0.0])) == Verdict.GAIN for medians in controls)
    return {name: round(count / trials, 4) for name, count in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--repeats", type=int, nargs="+", default=[LEAST_CONTROL_REPEATS, 5, 10])
    parser.add_argument("--gain", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    add_output(parser)
    options = parser.parse_args()
    results: dict[str, dict[int, dict[str, float]]] = {}
    for scale in (1.0, 2.0):
        for kind, noise in NOISE.items():
            name = kind if scale == 1 else f"{kind}, twice as much"
            results[name] = {}
            for repeats in options.repeats:
                results[name][repeats] = rates(noise, scale, repeats, options.trials, options.gain, options.seed)
            print(f"{name}: {results[name]}", flush=True)
    line = {
        "benchmark": "control_errors",
        "baseline": "equal arms: at most 0.03; injected: at least 0.9, both at the noise seen here",
        "trials": options.trials,
        "gain": options.gain,
        "noise": {name: asdict(noise) for name, noise in NOISE.items()},
        "results": results,
    }
    write_line(line, options.output)


if __name__ == "__main__":
    main()
