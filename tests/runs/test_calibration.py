"""Rates from a run folder: which requests tell them, and how well they fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvbench.errors import UsageError
from kvbench.runs.calibration import calibrate, describe_fit
from kvbench.runs.rates import Rates
from kvbench.runs.records import RequestError, RequestRecord
from tests.made import PROMPT, Answer, Made, cyclic

TRUE = Rates(prefill=8_000, restore=400_000, overhead_ms=6)


def linear(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    """The default run, with times exactly as :data:`TRUE` makes them."""
    answer = cyclic(arm, repeat, index, position, doc)
    device, host = answer.device or 0, answer.host or 0
    return Answer(TRUE.ttft_ms((device, host, PROMPT - device - host)) or 0.0, device, host)


def test_the_rates_that_made_the_times_are_found(tmp_path: Path) -> None:
    run = Made(repeats=2).write(tmp_path / "run", linear)
    fitted = calibrate(run)
    assert (fitted.rates.prefill, fitted.rates.restore, fitted.rates.overhead_ms) == pytest.approx((8_000, 400_000, 6))
    assert (fitted.requests, fitted.worst_error < 1e-9) == (120, True)
    assert describe_fit(run, fitted)["fit"]["run"] == str(tmp_path / "run")


def test_failed_and_unknown_requests_tell_nothing(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = linear(arm, repeat, index, position, doc)
        if doc == 0:
            return replace(answer, error=RequestError("timeout", "no answer"))
        return Answer(999.0, device=None, host=None) if doc == 1 else answer

    fitted = calibrate(Made().write(tmp_path / "run", script))
    assert fitted.rates.prefill == pytest.approx(8_000)
    assert fitted.requests == 48


def test_a_request_that_failed_after_its_first_token_tells_nothing(tmp_path: Path) -> None:
    def edit(record: RequestRecord) -> RequestRecord:
        failed = record.key.doc_id == 0
        return replace(record, first_token_s=record.sent_s, error=RequestError("stream", "cut off")) if failed else record

    run = Made(edit=edit).write(tmp_path / "run", linear)
    for line in run.requests:
        line["ttft_ms"] = 999.0 if line["error"] else line["ttft_ms"]
    assert calibrate(run).requests == 54


def test_requests_that_met_others_tell_nothing(tmp_path: Path) -> None:
    """The second of each pass is sent while the first is still running; both are slower than alone."""

    def edit(record: RequestRecord) -> RequestRecord:
        if record.key.position == 0:
            late = {name: getattr(record, name) + 0.9 for name in ("first_token_s", "last_token_s")}
            return replace(record, end_s=record.end_s + 1.0, **late)
        if record.key.position == 1:
            return replace(record, sent_s=max(record.scheduled_s - 0.5, 0.0))
        return record

    run = Made().write(tmp_path / "run", linear)
    fitted = calibrate(Made(edit=edit).write(tmp_path / "edited", linear))
    assert fitted.requests < calibrate(run).requests == 60
    assert fitted.rates.prefill == pytest.approx(8_000)


def test_several_at_once_tell_nothing(tmp_path: Path) -> None:
    run = Made(edit=lambda record: replace(record, sent_s=0.0)).write(tmp_path / "run", linear)
    with pytest.raises(UsageError, match=r"tells no rates: no request that ran alone \(--concurrency 1\)"):
        calibrate(run)


def test_a_prediction_tells_nothing(tmp_path: Path) -> None:
    run = Made(config={"runner": "simulator"}).write(tmp_path / "run", linear)
    with pytest.raises(UsageError, match="is a prediction itself, and tells no rates; name the folder of a measured run"):
        calibrate(run)


def test_a_run_without_loads_tells_no_restore_rate(tmp_path: Path) -> None:
    fitted = calibrate(Made(arms={"none": None}).write(tmp_path / "run", linear))
    assert fitted.rates.restore is None
    assert fitted.rates.prefill == pytest.approx(8_000)
