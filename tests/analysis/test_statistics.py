"""Latency statistics and pass times against numpy on the same numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.statistics import P90_NEEDS, P99_NEEDS, statistics
from kvbench.experiments.readings import ExperimentView
from kvbench.runs.records import RequestError, RequestRecord
from kvbench.runs.run_folder import read_run
from kvbench.summary.summary import Summary, summarise
from tests.made import NAMES, Answer, Made, cyclic


def row(summary: Summary, arm: str, index: int) -> PassRow:
    return next(item for item in summary.passes if (item.arm, item.pass_index) == (arm, index))


def drawn(seed: int = 5) -> dict[tuple[str, int, int, int], float]:
    rng = np.random.default_rng(seed)
    keys = [(arm, repeat, index, doc) for arm in ("none", "cpu") for repeat in range(3) for index in range(3) for doc in range(10)]
    return dict(zip(keys, rng.uniform(20, 600, len(keys)), strict=True))


@pytest.mark.parametrize("n", [1, 2, 9, 10, 63, 64, 661, 662])
def test_statistics_are_numpys(n: int) -> None:
    data = np.random.default_rng(n).exponential(100, n)
    found = statistics(data.tolist())
    assert found.n == n
    assert found.p50 == pytest.approx(np.percentile(data, 50))
    assert found.mean == pytest.approx(data.mean())
    assert (found.min, found.max) == (data.min(), data.max())
    assert found.std == (pytest.approx(data.std(ddof=1)) if n > 1 else None)


@pytest.mark.parametrize(("n", "p90", "p99"), [(63, False, False), (64, True, False), (661, True, False), (662, True, True)])
def test_tail_percentiles_are_withheld_below_their_counts(n: int, p90: bool, p99: bool) -> None:
    assert (P90_NEEDS, P99_NEEDS) == (64, 662)
    data = np.random.default_rng(1).exponential(100, n)
    found = statistics(data.tolist())
    assert found.p90 == (pytest.approx(np.percentile(data, 90)) if p90 else None)
    assert found.p99 == (pytest.approx(np.percentile(data, 99)) if p99 else None)


def test_no_values_are_unknown_and_not_zero() -> None:
    assert [getattr(statistics([]), name) for name in ("p50", "mean", "std", "min", "max")] == [None] * 5


def test_rows_pool_the_requests_of_all_repeats(tmp_path: Path) -> None:
    times = drawn()
    run = Made(repeats=3).write(tmp_path / "run", lambda arm, repeat, index, _, doc: Answer(times[arm, repeat, index, doc]))
    summary = summarise(run)
    for arm in ("none", "cpu"):
        for index in range(3):
            values = [value for key, value in times.items() if (key[0], key[2]) == (arm, index)]
            ttft = row(summary, arm, index).ttft_ms
            assert ttft.n == 30
            assert ttft.p50 == pytest.approx(np.median(values))
            assert ttft.mean == pytest.approx(np.mean(values))


def test_pass_time_is_the_median_over_repeats(tmp_path: Path) -> None:
    run = Made(repeats=3).write(tmp_path / "run", lambda arm, repeat, *_: Answer([100.0, 900.0, 200.0][repeat]))
    assert ExperimentView(run).pass_seconds("none", 0) == pytest.approx(10 * (0.2 + 0.007))


def test_failed_requests_are_counted_and_never_timed(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        error = RequestError("timeout", "no answer") if arm == "cpu" and index == 1 and doc < 3 else None
        return Answer(100.0 + doc, error=error)

    found = row(summarise(Made().write(tmp_path / "run", script)), "cpu", 1)
    assert (found.failed, found.ttft_ms.n) == (3, 7)
    assert found.ttft_ms.p50 == pytest.approx(np.median([100.0 + doc for doc in range(3, 10)]))
    assert found.computed == 7 * 5025


def test_a_request_that_failed_after_its_first_token_is_not_timed(tmp_path: Path) -> None:
    """A stream that breaks: it has a TTFT, and is no success."""

    def edit(record: RequestRecord) -> RequestRecord:
        return replace(record, error=RequestError("stream", "broke")) if record.key.position == 0 else record

    found = row(summarise(Made(edit=edit).write(tmp_path / "run", lambda *args: Answer(9e3 if args[3] == 0 else 100.0))), "cpu", 1)
    assert (found.failed, found.ttft_ms.n, found.speedup.p50) == (1, 9, 1.0)
    assert found.ttft_ms.max == pytest.approx(100.0)


def test_a_pass_in_which_all_failed_has_no_latency(tmp_path: Path) -> None:
    def script(arm: str, *_: int) -> Answer:
        return Answer(1.0, error=RequestError("http", "refused", 500) if arm == "cpu" else None)

    found = row(summarise(Made().write(tmp_path / "run", script)), "cpu", 0)
    assert (found.failed, found.ttft_ms.n, found.ttft_ms.p50, found.speedup.p50) == (10, 0, None, None)
    assert (found.device, found.host, found.computed) == (None, None, None)


def test_passes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    run = Made(passes=("sequential", "repeat", "repeat", "sequential")).write(tmp_path / "run", cyclic)
    labels = [item.pass_label for item in summarise(run).passes if item.arm == "none"]
    assert labels == ["sequential", "repeat", "repeat#2", "sequential#2"]


def test_an_interrupted_run_shows_what_was_measured(tmp_path: Path) -> None:
    run = Made(stop_after=25).write(tmp_path / "run", cyclic, status="interrupted", reasons=["Ctrl-C"])
    summary = summarise(run)
    assert [(item.arm, item.pass_name, item.ttft_ms.n) for item in summary.passes] == [
        ("none", NAMES[0], 10),
        ("none", NAMES[1], 10),
        ("none", NAMES[2], 5),
    ]
    assert row(summary, "none", 2).pass_s is None
    assert any("interrupted after 25 of 60 requests: Ctrl-C" in note for note in summary.notes)


def test_requests_that_were_never_sent_are_not_what_it_was_interrupted_after(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        return answer if position < 4 else replace(answer, error=RequestError("not_sent", "the run was stopped"))

    run = Made(stop_after=10).write(tmp_path / "run", script, status="interrupted", reasons=["Ctrl-C"])
    assert any("interrupted after 4 of 60 requests: Ctrl-C" in note for note in summarise(run).notes)


def test_a_run_killed_before_its_first_request_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run"
    Made(stop_after=0).write(path, cyclic, status="running")
    summary = summarise(read_run(path), per_document=True)
    assert (summary.passes, summary.sources, summary.documents) == ((), (), ())
    assert "nothing to read" in summary.sentences[0]
    assert any("still marked as running with 0 of 60 requests" in note for note in summary.notes)
