"""Prediction against measurement: whether each request's tokens by tier are what the simulator foresaw, and both side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kvbench.analysis.request_table import PassTokens
from kvbench.runs.rates import Rates, TierTokens
from kvbench.runs.run_folder import Run

_PLACE = ["arm", "repeat", "pass_index", "position"]
_TIERS = ["device", "host", "computed"]
_FORESEEN = [f"foreseen_{tier}" for tier in _TIERS]


@dataclass(frozen=True, slots=True)
class Difference:
    """One request that was not as predicted: device, host and computed tokens."""

    request_id: str
    predicted: TierTokens
    measured: TierTokens


@dataclass(frozen=True, slots=True)
class Agreement:
    """The requests of finished passes that have a prediction and known tokens, and those among them that differ from it.

    ``exact``: the prediction is a promise (one request at a time, a known profile); else it is an estimate, and a difference no fault.
    """

    profile: str
    exact: bool
    requests: int
    differences: tuple[Difference, ...]


def compare(run: Run) -> Agreement | None:
    """Hold the measured tokens against the predicted ones; ``None`` if nothing was predicted. Failed requests are left out."""
    predicted = {(line["arm"], line["repeat"], line["pass_index"]): line["prediction"] for line in run.passes if line.get("prediction")}
    if not predicted:
        return None
    requests = 0
    differences = []
    for line in run.requests:
        prediction = predicted.get((line["arm"], line["repeat"], line["pass_index"]))
        measured = (line["cached_tokens_device"], line["cached_tokens_host"], line["computed_tokens"])
        if prediction is None or line["error"] is not None or None in measured:
            continue
        requests += 1
        device, host, computed = prediction["requests"][line["position"]]
        if measured != (device, host, computed):
            differences.append(Difference(line["request_id"], (device, host, computed), measured))
    any_prediction = next(iter(predicted.values()))
    exact = all(prediction["exact"] for prediction in predicted.values())
    return Agreement(any_prediction["profile"], exact, requests, tuple(differences))


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What was predicted of a pass, or of one request of it, beside its measurement.

    Tokens are of one repeat, as the measured ones beside it. ``difference`` is measured − predicted (device, host, computed), ``None``
    where the measurement is unknown. ``differing`` counts requests of all repeats. ``ttft_ms`` is the median. ``exact``: a promise; else
    an estimate.
    """

    exact: bool
    device: int
    host: int
    computed: int
    difference: TierTokens | None
    differing: int
    ttft_ms: float | None


def with_prediction(frame: pd.DataFrame, run: Run, rates: Rates | None) -> pd.DataFrame:
    """The requests, and of each what was predicted: ``foreseen_device``, ``_host``, ``_computed``, ``_ttft_ms``, ``exact``; else NaN.

    Args:
        frame: :func:`kvbench.analysis.request_table.request_frame`.
        rates: what turns predicted tokens into a TTFT where the run itself had no rates.
    """
    columns = [*_PLACE, *_FORESEEN, "foreseen_ttft_ms", "exact"]
    predicted = pd.DataFrame(_predicted(run, rates), columns=columns).astype(frame[_PLACE].dtypes.to_dict())
    return frame.merge(predicted.astype(dict.fromkeys(columns[len(_PLACE) :], "float64")), how="left", on=_PLACE)


def _predicted(run: Run, rates: Rates | None) -> Iterator[tuple[Any, ...]]:
    for line in run.passes:
        prediction = line.get("prediction")
        if prediction is None:
            continue
        for position, (device, host, computed) in enumerate(prediction["requests"]):
            ttft = prediction["ttft_ms"][position]
            if ttft is None and rates is not None:
                ttft = rates.ttft_ms((device, host, computed))
            yield line["arm"], line["repeat"], line["pass_index"], position, device, host, computed, ttft, prediction["exact"]


def foreseen(requests: pd.DataFrame, finished: set[int], measured: PassTokens) -> Foreseen | None:
    """The prediction of a pass or a request, ``None`` where there is none.

    Args:
        requests: its rows of :func:`with_prediction`, all repeats.
        finished: as for :func:`kvbench.analysis.request_table.tokens_of_pass`, whose result is ``measured``.
    """
    exact = requests["exact"].to_numpy()
    if np.isnan(exact).all():
        return None
    answered = ~requests["failed"].to_numpy()
    repeats = requests["repeat"].to_numpy()
    counted = answered & np.isin(repeats, list(finished)) if finished else answered
    predicted, own = requests[_FORESEEN].to_numpy(), requests[_TIERS].to_numpy()
    if not counted.any() or np.isnan(predicted[counted]).any():
        return None
    # As in tokens_of_pass: the mean of the repeats' sums.
    device, host, computed = (round(float(total)) for total in predicted[counted].sum(axis=0) / len(np.unique(repeats[counted])))
    difference = None
    if measured.device is not None and measured.host is not None and measured.computed is not None:
        difference = (measured.device - device, measured.host - host, measured.computed - computed)
    known = answered & ~np.isnan(predicted).any(axis=1) & ~np.isnan(own).any(axis=1)
    ttft_ms = float(np.median(requests["foreseen_ttft_ms"].to_numpy()[counted]))
    return Foreseen(
        exact=bool((exact[~np.isnan(exact)] == 1).all()),
        device=device,
        host=host,
        computed=computed,
        difference=difference,
        differing=int((predicted[known] != own[known]).any(axis=1).sum()),
        ttft_ms=None if math.isnan(ttft_ms) else ttft_ms,
    )
