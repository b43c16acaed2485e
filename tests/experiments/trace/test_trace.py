"""Experiment ``trace``: whole runs, small ones, on the engine and the simulator; and what is refused before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.analysis.prediction import compare
from kvbench.cli.main import main
from kvbench.errors import UsageError
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.readings import ExperimentView
from kvbench.experiments.trace.options import TraceOptions
from kvbench.experiments.trace.workload import TraceReplay, make_workload
from kvbench.reports.formats import markdown, terminal
from kvbench.runners.base import DeviceCapacity, OpenLoop, as_source
from kvbench.runs.run_folder import Run, read_run
from kvbench.session import session
from kvbench.session.watcher import Watcher
from kvbench.summary import validity
from kvbench.summary.summary import summarise
from tests.configs import loaded
from tests.folders import VOCAB
from tests.traces import EXCERPT, hashed, write_trace

BLOCK = 32
"""Tokens of a hash id in the made traces: two blocks of the pool's 16."""

FACTS = RunnerFacts(VOCAB, Path("nowhere"), DeviceCapacity(224, 16))

SIZES = {"kv_tokens": 224, "block_size": 16, "chunk_tokens": 32, "trace_block_size": BLOCK}
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def measure(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Replays a trace on the small model and reads the run's folder; no reason to distrust it."""

    def run(trace: Path, **given: Any) -> Run:
        sizes = {name: value for name, value in SIZES.items() if name != "chunk_tokens" or given.get("tier") != "none"}
        config = loaded(None, {"experiment": "trace", "trace": trace, "model": str(small_model), **sizes, **given})
        finished = session.run(config, tmp_path_factory.mktemp("runs") / "run", Watcher(), ["kvbench", "run"])
        assert finished.reasons == []
        return read_run(finished.path)

    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five requests; the second begins as the first, the last is the first again."""
    lines = [
        hashed(1, 2, 3, tokens=90, time_ms=1000, output=3),
        hashed(1, 2, 4, tokens=96, time_ms=1010, output=2),
        hashed(5, 6, 7, tokens=96, time_ms=1010, output=4),
        hashed(8, 9, 10, tokens=80, time_ms=1030, output=1),
        hashed(1, 2, 3, tokens=90, time_ms=1040, output=3),
    ]
    return write_trace(tmp_path_factory.mktemp("traces") / "made.jsonl", lines)


@pytest.fixture(scope="module")
def replayed(measure: Callable[..., Run], made: Path) -> Run:
    return measure(made, concurrency=1)


def workload(trace: Path, **given: Any) -> TraceReplay:
    config = TraceOptions.model_validate({"experiment": "trace", "trace": trace, **SIZES, **given})
    return make_workload(config, FACTS)


def tokens_of(run: Run, arm: str) -> list[tuple[int, int, int]]:
    lines = sorted((line for line in run.requests if line["arm"] == arm), key=lambda line: int(line["position"]))
    return [(line["cached_tokens_device"], line["cached_tokens_host"], line["computed_tokens"]) for line in lines]


def test_the_same_ids_hit_as_the_trace_says(replayed: Run) -> None:
    # 14 blocks of 16. The fourth request finds 13 in use to be found again, and evicts four: the ends of the first two prompts, and the
    # fourth of the blocks that they have in common.
    assert tokens_of(replayed, "none") == [(0, 0, 90), (64, 0, 32), (0, 0, 96), (0, 0, 80), (48, 0, 42)]
    assert tokens_of(replayed, "cpu") == [(0, 0, 90), (64, 0, 32), (0, 0, 96), (0, 0, 80), (48, 16, 26)]
    agreement = compare(replayed)
    assert agreement is not None
    assert (agreement.exact, agreement.requests, agreement.differences) == (True, 10, ())


def test_outputs_are_the_trace_own(replayed: Run, measure: Callable[..., Run], made: Path) -> None:
    assert [line["output_tokens"] for line in replayed.requests[:5]] == [3, 2, 4, 1, 3]
    assert "output_tokens" not in replayed.manifest["config"]
    run = measure(made, concurrency=1, output_tokens=2, tier="none")
    assert [line["output_tokens"] for line in run.requests] == [2] * 5
    assert run.manifest["config"]["output_tokens"] == 2


def test_a_prompt_that_comes_again_is_the_same_document(replayed: Run) -> None:
    assert [line["doc_id"] for line in replayed.requests[:5]] == [0, 1, 2, 3, 0]


def test_the_manifest_says_what_was_replayed(replayed: Run, made: Path) -> None:
    # Distinct: 32 + 32 + 26 of the first, 32 of the second's end, 96 and 80 of the others.
    assert replayed.manifest["workload"] == {
        "trace": "made.jsonl", "requests_per_pass": 5, "left_out": 0, "prompt_tokens": 452, "output_tokens": 13, "span_s": None,
        "working_set_tokens": 298,
    }  # fmt: skip
    assert replayed.manifest["capacity"]["host_tokens"] == {"none": None, "cpu": (2 + 1 + 3 + 2) * 32}  # no answer fills a chunk
    assert replayed.manifest["config"]["trace"] == str(made)
    assert "passes" not in replayed.manifest["config"]


def test_a_manifest_runs_the_trace_again(replayed: Run, measure: Callable[..., Run], small_model: Path) -> None:
    config = loaded(replayed.path / "manifest.json", {})
    assert config.resolved() == replayed.manifest["config"]
    again = make_workload(config, FACTS)
    assert list(again.output_tokens) == [3, 2, 4, 1, 3]
    assert again.times_s is None


def test_the_report_reads_a_trace_as_one_pass(replayed: Run) -> None:
    summary = summarise(replayed)
    assert "made.jsonl: 5 of 90 + 3" in summary.title
    assert [(row.arm, row.pass_label, row.ttft_ms.n, row.device, row.host) for row in summary.passes] == [
        ("none", "trace", 5, 112, 0), ("cpu", "trace", 5, 112, 16),
    ]  # fmt: skip
    assert len(summary.sentences) == 1
    assert summary.sentences[0].startswith("Over the trace, the cpu tier ")
    assert (summary.first_reads, summary.scheduled) == ((), ())
    assert not any("pass" in note for note in summary.notes)
    assert max(len(line) for line in terminal.render(summary).splitlines()) <= 80


def test_own_times_make_an_open_loop(measure: Callable[..., Run], made: Path) -> None:
    run = measure(made, speedup=2.0)
    assert run.manifest["workload"]["span_s"] == pytest.approx(0.02)
    assert "concurrency" not in run.manifest["config"]
    for arm in ("none", "cpu"):
        lines = sorted((line for line in run.requests if line["arm"] == arm), key=lambda line: int(line["position"]))
        start = lines[0]["scheduled_s"]
        assert [line["scheduled_s"] - start for line in lines] == pytest.approx([0.0, 0.005, 0.005, 0.015, 0.02])
        assert all(line["sent_s"] >= line["scheduled_s"] for line in lines)
    agreement = compare(run)
    assert agreement is not None
    assert agreement.exact is False


def test_an_open_loop_reports_ttft_from_the_scheduled_time(measure: Callable[..., Run], made: Path) -> None:
    run = measure(made, tier="none")
    (row,) = summarise(run).scheduled
    ttft = [(line["first_token_s"] - line["scheduled_s"]) * 1e3 for line in run.requests]
    late = [(line["sent_s"] - line["scheduled_s"]) * 1e3 for line in run.requests]
    assert (row.arm, row.pass_label, row.ttft_ms.n) == ("none", "trace", 5)
    assert row.ttft_ms.mean == pytest.approx(sum(ttft) / 5)
    assert row.late_ms.max == pytest.approx(max(late))
    for text in (terminal.render(summarise(run)), markdown.render(summarise(run))):
        assert "From the scheduled time" in text
        assert "late max" in text


def test_a_trace_without_times_is_a_closed_loop_of_one(measure: Callable[..., Run], tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"token_ids": [*range(1, 60)], "output_tokens": 2}, {"token_ids": [*range(1, 60), 77]}]
    run = measure(write_trace(tmp_path / "own.jsonl", lines))
    assert tokens_of(run, "none") == [(0, 0, 59), (48, 0, 12)]
    assert [line["output_tokens"] for line in run.requests] == [2, 8, 2, 8]  # 8: --output-tokens, where the trace does not say
    agreement = compare(run)
    assert agreement is not None
    assert (agreement.exact, agreement.differences) == (True, ())


def test_the_cut_and_what_is_left_out(measure: Callable[..., Run], made: Path) -> None:
    run = measure(made, limit=4, max_prompt_tokens=90, concurrency=2, tier="none")
    assert sorted(line["prompt_tokens"] for line in run.requests) == [80, 90]
    assert run.manifest["workload"]["left_out"] == 2
    notes = summarise(run).notes
    assert "2 of the trace's requests were left out: their prompts are above --max-prompt-tokens" in notes
    assert "no prompt of the trace begins as an earlier one did, so nothing can hit" in notes


def test_a_hit_of_the_first_request_is_a_warm_cache(replayed: Run) -> None:
    from dataclasses import replace

    warm = {"cached_tokens_device": 32, "computed_tokens": 58}
    lines = [line | (warm if line["request_id"] == "cpu-r0-p0-0" else {}) for line in replayed.requests]
    [first, *_] = validity.reasons(ExperimentView(replace(replayed, requests=lines)))
    assert first.startswith("the first pass of arm cpu was not cold: 1 request met")


def test_answers_that_are_not_as_long_as_asked_for(replayed: Run) -> None:
    from dataclasses import replace

    lines = [line | ({"output_tokens": 1} if line["request_id"] == "none-r0-p0-2" else {}) for line in replayed.requests]
    assert validity.reasons(ExperimentView(replace(replayed, requests=lines))) == [
        "the answers of arm none, repeat 0, hold 10 tokens, and the trace asks for 13"
    ]


def test_the_simulator_replays_a_real_trace_block_by_block(tmp_path: Path) -> None:
    given = {"experiment": "trace", "runner": "simulator", "trace": EXCERPT, "kv_tokens": 200_000, "tier": "none", "concurrency": 1}
    run = read_run(session.run(loaded(None, given), tmp_path / "run", Watcher(), []).path)
    lines = [json.loads(line) for line in EXCERPT.read_text().splitlines()]
    seen: set[int] = set()
    expected = []
    for line in lines:
        found = next((place for place, block in enumerate(line["hash_ids"]) if block not in seen), len(line["hash_ids"]))
        hit = min(found * 512, line["input_length"] - 1) // 16 * 16  # whole blocks of 16, and the last token is computed
        expected.append(hit)
        seen.update(line["hash_ids"])
    assert [line["cached_tokens_device"] for line in run.requests] == expected
    assert sum(expected) > 100_000


def test_a_real_trace_on_the_engine(tmp_path: Path) -> None:
    given = {"experiment": "trace", "trace": EXCERPT, "limit": 12, "max_prompt_tokens": 1600, "kv_tokens": 4096, "output_tokens": 2}
    finished = session.run(loaded(None, {**given, "speedup": 1e6}), tmp_path / "run", Watcher(), [])
    assert finished.reasons == []
    run = read_run(finished.path)
    assert len(run.requests) == 2 * run.manifest["workload"]["requests_per_pass"]
    assert sum(line["cached_tokens_device"] for line in run.requests) > 0


# Refused before anything runs.


def test_a_request_that_never_fits_is_named_by_its_line(small_model: Path, tmp_path: Path, capsys: Captured) -> None:
    trace = write_trace(tmp_path / "a.jsonl", ["", hashed(1, tokens=20), hashed(*range(1, 11), tokens=300)])
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
    assert main(["run", "trace", "--trace", str(trace), "--model", str(small_model), *words, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("kvbench: error: --trace a.jsonl, line 3 (--max-prompt-tokens leaves larger ones out): 300 prompt and 4 output")
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "the experiment trace needs --trace FILE"),
        ({"trace": "x", "docs": 3}, "--docs does not apply: the experiment is trace"),
        ({"trace": "x", "passes": "repeat"}, "--passes does not apply: the experiment is trace"),
        ({"trace": "x", "concurrency": 2, "speedup": 3}, "--speedup does not apply: --concurrency sends instead of the trace's own times"),
        ({"trace": "x", "rate": 2, "speedup": 3}, "--speedup does not apply: --rate sends instead of the trace's own times"),
        ({"trace": "x", "speedup": 0}, "--speedup: Input should be greater than 0"),
        ({"trace": "x", "limit": 0}, "--limit: Input should be greater than or equal to 1"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(None, {"experiment": "trace", **given})
    assert reason in str(caught.value)


def test_a_trace_belongs_to_its_experiment() -> None:
    with pytest.raises(UsageError, match="--trace does not apply: the experiment is cyclic"):
        loaded(None, {"trace": "x"})


def test_a_speedup_of_a_trace_without_times(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "own.jsonl", [{"token_ids": [1]}])
    with pytest.raises(UsageError, match=r"--speedup: .*own.jsonl has no timestamps"):
        workload(trace, speedup=2.0)
    assert workload(trace, speedup=1.0).times_s is None  # as a manifest says it


def test_times_in_another_unit_are_noticed(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "own.jsonl", [{"token_ids": [1], "timestamp": time} for time in (0, 3_536_999)])
    with pytest.raises(UsageError, match=r"replaying its times takes 41 days; say --trace-time-unit ms if they are not seconds"):
        workload(trace)
    assert workload(trace, trace_time_unit="ms").times_s == pytest.approx([0.0, 3536.999])
    assert workload(trace, speedup=1000).times_s == pytest.approx([0.0, 3536.999])
    assert workload(trace, concurrency=4).times_s is None


def test_the_pace_is_relative_to_the_first_request(made: Path) -> None:
    replay = workload(made)
    pace = replay.pace(replay.passes[0])
    assert isinstance(pace, OpenLoop)
    assert list(pace.times_s) == pytest.approx([0.0, 0.01, 0.01, 0.03, 0.04])


def test_prompts_are_made_when_they_are_sent(made: Path) -> None:
    replay = workload(made)
    requests = as_source(replay.requests("none", 0, replay.passes[0])).first
    assert not any(isinstance(request.prompt, list) for request in requests)
    assert [len(request.prompt) for request in requests] == [90, 96, 96, 80, 90]
    assert list(requests[4].prompt) == list(requests[0].prompt)
    assert list(requests[1].prompt)[:64] == list(requests[0].prompt)[:64]


def test_an_answer_of_no_token_still_gives_one(tmp_path: Path) -> None:
    assert list(workload(write_trace(tmp_path / "a.jsonl", [hashed(1, tokens=5, output=0)])).output_tokens) == [1]
