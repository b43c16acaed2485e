"""Prediction against measurement: whether each request's tokens by tier are what the simulator foresaw."""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.runfolder import Run


@dataclass(frozen=True, slots=True)
class Difference:
    """One request that was not as predicted: device, host and computed tokens."""

    request_id: str
    predicted: tuple[int, int, int]
    measured: tuple[int, int, int]


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
