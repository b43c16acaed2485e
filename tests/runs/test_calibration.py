"""Rates from a run folder: which requests tell them, and how well they fit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kvbench.errors import UsageError
from kvbench.reports.formats import terminal
from kvbench.runs.calibration import calibrate, complete, describe_fit
from kvbench.runs.rates import Rates
from kvbench.runs.records import PassRecord, RequestError, RequestRecord
from kvbench.runs.run_folder import Run
from kvbench.summary.summary import summarise
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
    run = Made(arms={"none": None}).write(tmp_path / "run", linear)
    fitted = calibrate(run)
    assert fitted.rates.restore is None
    assert fitted.rates.prefill == pytest.approx(8_000)
    with pytest.raises(UsageError, match=r"none of its requests loaded from a host tier a known number of tokens; give --restore-rate"):
        complete(Rates(None, None), None, run, tier=True)


def lost(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    """Loads that are timed, and first tokens that came no later for them."""
    answer = cyclic(arm, repeat, index, position, doc)
    return replace(answer, ttft_ms=1.0 if answer.host else 100.0, restore_ms=2.0 if answer.host else None)


def test_a_load_that_the_fit_gives_no_time_is_the_reason_that_is_said(tmp_path: Path) -> None:
    """Its report prints what a load takes, so that no request tells it would be wrong."""
    run = Made(edit_pass=predicted).write(tmp_path / "run", lost)
    assert calibrate(run).rates.restore is None
    words = (
        "the restore rate cannot be told from the noise of its times (16 requests loaded from a host tier, 4,864 tokens in the median; "
        "the loads by themselves ran at 2,432,000 tokens/s); give --restore-rate"
    )
    with pytest.raises(UsageError, match=re.escape(words)):
        complete(Rates(None, None), None, run, tier=True)
    assert "Where it needs another rate, none is predicted: the restore rate cannot be told" in report(run)


def test_loads_that_met_others_are_the_reason_that_is_said(tmp_path: Path) -> None:
    def edit(record: RequestRecord) -> RequestRecord:
        return replace(record, sent_s=record.scheduled_s - 1.0) if record.key.arm == "cpu" and record.key.pass_index else record

    run = Made(edit=edit).write(tmp_path / "run", linear)
    with pytest.raises(UsageError, match=r"none of its 16 requests that loaded from a host tier ran alone \(--concurrency 1\)"):
        complete(Rates(None, None), None, run, tier=True)


def test_a_report_says_why_no_time_is_predicted(tmp_path: Path) -> None:
    run = Made(edit=lambda record: replace(record, sent_s=0.0), edit_pass=predicted).write(tmp_path / "run", linear)
    assert "No TTFT is predicted: no request that ran alone (--concurrency 1) has a first token" in report(run)


def test_nothing_to_compare_is_said_as_such(tmp_path: Path) -> None:
    run = Made(edit_pass=predicted).write(tmp_path / "run", lambda *_: Answer(5.0, device=None, host=None))
    assert "profile engine: nothing to compare with, as no request that succeeded has known tokens by tier." in report(run)


def predicted(record: PassRecord) -> PassRecord:
    """With a prediction that computes everything."""
    tokens = [(0, 0, PROMPT)] * record.requests
    sums = {"device": 0, "host": 0, "computed": PROMPT * record.requests}
    times = {"ttft_ms": [None] * record.requests, "rates": None}
    return replace(record, prediction={"profile": "engine", **sums, "requests": tokens, "exact": False, **times})


def report(run: Run) -> str:
    return " ".join(terminal.render(summarise(run, per_document=True)).split())
