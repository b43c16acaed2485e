"""Rates from a measured run: what turns predicted tokens into predicted times on the same machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from kvbench.errors import UsageError
from kvbench.runs.rates import FittedRates, Rates, TierTokens, fit_rates
from kvbench.runs.run_folder import Run

Line = dict[str, Any]

MOST_REQUESTS = 10_000
"""Requests that are fitted to, evenly spaced over the run; three numbers gain nothing from more."""


def calibrate(run: Run) -> FittedRates:
    """Fit rates to the requests of a run that ran alone, did not fail, and whose tokens by tier are known.

    Raises:
        UsageError: there is none, or the run was simulated.
    """
    if (run.manifest.get("config") or {}).get("runner") == "simulator":
        raise UsageError(f"{run.path}: is a prediction itself, and tells no rates; name the folder of a measured run")
    alone = _alone(run.requests)
    step = -(-len(alone) // MOST_REQUESTS)
    measured = [(tokens, line["ttft_ms"]) for line in alone[:: step or 1] if (tokens := _tokens(line)) and line["ttft_ms"]]
    if not measured:
        raise UsageError(
            f"{run.path}: tells no rates: no request that ran alone (--concurrency 1) has a first token and known tokens by tier; "
            "name the folder of another run"
        )
    return fit_rates(measured)


def describe_fit(run: Run, fitted: FittedRates) -> dict[str, Any]:
    """The rates and the fit they come from, as the manifest of a simulated run and the summary of a measured one show them."""
    fit = {
        "run": str(run.path),
        "model": (run.manifest.get("model") or {}).get("name"),
        "status": run.manifest.get("status"),
        "requests": fitted.requests,
        "median_error": fitted.median_error,
        "worst_error": fitted.worst_error,
    }
    return {**asdict(fitted.rates), "fit": fit}


def fit_notes(fitted_model: str | None, status: str | None, model: str | None) -> Iterator[str]:
    """Why rates that were fitted to a run may not be those of ``model``; ``None``: no model is named."""
    if model is not None and fitted_model != model:
        yield f"the rates were fitted to a run of the model {fitted_model}, and this one is of {model}: the times are another model's"
    if status != "complete":
        yield f"the run that the rates were fitted to is marked {status}"


def complete(given: Rates, overhead_ms: float | None, run: Run, tier: bool) -> tuple[Rates, FittedRates]:
    """Rates that are given, and those of a run where they are not; and the fit.

    Args:
        given: rates; its overhead is not looked at.
        overhead_ms: ``None``: the run's.
        tier: whether the time of a load must be known.

    Raises:
        UsageError: the run does not tell a rate that is needed and not given.
    """
    fitted = calibrate(run)
    prefill, restore = given.prefill or fitted.rates.prefill, given.restore or fitted.rates.restore
    if prefill is None:
        raise UsageError(f"--calibrate {run.path}: {why_unknown(run, 'prefill')}; give --prefill-rate")
    if restore is None and tier:
        raise UsageError(f"--calibrate {run.path}: {why_unknown(run, 'restore')}; give --restore-rate")
    return Rates(prefill, restore, fitted.rates.overhead_ms if overhead_ms is None else overhead_ms), fitted


def why_unknown(run: Run, rate: str) -> str:
    """Why a run does not tell a rate, ``prefill`` or ``restore``, although others can be fitted to it."""
    column, did = {"prefill": ("computed_tokens", "computed"), "restore": ("cached_tokens_host", "loaded from a host tier")}[rate]
    able = [line for line in run.requests if line["error"] is None and line[column]]
    alone = [line for line in _alone(run.requests) if line["error"] is None and line[column]]
    if not able:
        return f"none of its requests {did} a known number of tokens"
    if not alone:
        return f"none of its {len(able):,} requests that {did} ran alone (--concurrency 1)"
    tokens = float(np.median([line[column] for line in alone]))
    why = f"the {rate} rate cannot be told from the noise of its times ({len(alone):,} requests {did}, {tokens:,.0f} tokens in the median"
    timed = [line[column] / line["restore_ms"] * 1e3 for line in alone if rate == "restore" and line["restore_ms"]]
    return f"{why}; the loads by themselves ran at {np.median(timed):,.0f} tokens/s)" if timed else f"{why})"


def _alone(lines: list[Line]) -> list[Line]:
    """The requests during which no other one was in flight, in the order in which they were sent."""
    times = np.array([(line["sent_s"], line["end_s"]) for line in lines if line["sent_s"] is not None], dtype=np.float64).reshape(-1, 2)
    known = [line for line in lines if line["sent_s"] is not None]
    order = np.argsort(times[:, 0], kind="stable")
    sent, ended = times[order].T
    free = np.maximum.accumulate(np.concatenate([[0.0], ended]))[:-1]  # when the last of those before had ended
    following = np.concatenate([sent[1:], [np.inf]])[: len(sent)]
    return [known[place] for place in order[(sent >= free) & (following >= ended)].tolist()]


def _tokens(line: Line) -> TierTokens | None:
    device, host, computed = (line[name] for name in ("cached_tokens_device", "cached_tokens_host", "computed_tokens"))
    return None if line["error"] is not None or None in (device, host, computed) else (device, host, computed)
