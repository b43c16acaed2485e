"""The simulator as a runner: whole runs without a model, into the same run folder, and what a report says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.main import main
from kvbench.errors import UsageError
from kvbench.experiments.composed import load_config
from kvbench.planning.config import PlanConfig
from kvbench.planning.plan import make_plan
from kvbench.reports.formats import markdown, terminal
from kvbench.reports.formats.csv import to_csv
from kvbench.reports.formats.json import to_json
from kvbench.runners.base import ClosedLoop, ListSource, OpenLoop, Pace, Request
from kvbench.runners.profiles import DOCUMENTS, ENGINE, VLLM
from kvbench.runners.simulator.prediction import Predictor
from kvbench.runners.simulator.runner import SimulatorRunner
from kvbench.runners.simulator.simulator import CacheSizes
from kvbench.runs.rates import Rates
from kvbench.runs.records import RequestKey, RequestRecord
from kvbench.runs.run_folder import Run, read_run
from kvbench.session import session
from kvbench.session.watcher import Watcher
from kvbench.summary.summary import Summary, summarise
from tests.folders import write_files
from tests.made import Answer, Made, cyclic

SMALL = {"docs": 3, "doc_tokens": 600, "kv_tokens": 1024}
Captured = pytest.CaptureFixture[str]
Simulate = Callable[..., Run]


@pytest.fixture
def simulate(tmp_path: Path) -> Simulate:
    """Runs a configuration on the simulator, and reads its folder."""

    def run(**given: Any) -> Run:
        config = load_config(None, {"runner": "simulator", **given})
        finished = session.run(config, tmp_path / f"run-{len(list(tmp_path.iterdir()))}", Watcher(), ["kvbench", "run"])
        assert finished.reasons == []
        return read_run(finished.path)

    return run


def tokens_by_pass(run: Run) -> list[tuple[int | None, int | None, int | None]]:
    return [(row.device, row.host, row.computed) for row in summarise(run).passes]


def notes_of(run: Run) -> str:
    return " ".join(summarise(run).notes)


# The same records.


def test_the_default_run_has_the_known_values(simulate: Simulate) -> None:
    run = simulate()
    assert tokens_by_pass(run) == [
        (0, 0, 50_250), (0, 0, 50_250), (21_504, 0, 28_746),
        (0, 0, 50_250), (0, 48_640, 1_610), (21_504, 27_776, 970),
    ]  # fmt: skip
    assert (run.manifest["status"], run.manifest["profile"], run.manifest["rates"]) == ("complete", "engine", None)
    assert run.manifest["environment"]["device"] is None
    assert run.manifest["model"] == {"name": "tiny", "vocab": 2048, "bytes_per_token": 2 * 8 * 2 * 64 * 2}


def test_a_simulated_run_has_the_tokens_of_the_measured_one(simulate: Simulate, small_model: Path, tmp_path: Path) -> None:
    given = {
        "model": str(small_model), "docs": 5, "doc_tokens": 90, "kv_tokens": 256, "block_size": 4, "chunk_tokens": 16, "host_tokens": 300,
        "overlap": 0.2, "reuse": 0.8, "passes": "sequential,zipf:0.9,reverse,repeat", "question": "vary", "output_tokens": 5,
    }  # fmt: skip
    measured = read_run(session.run(load_config(None, given), tmp_path / "measured", Watcher(), []).path)
    simulated = simulate(**given)
    same = ("arm", "repeat", "pass", "position", "request_id", "doc_id", "prompt_tokens", "prompt_tokens_sent", "output_tokens")
    tiers = ("cached_tokens_device", "cached_tokens_host", "computed_tokens")
    assert [[line[name] for name in (*same, *tiers)] for line in simulated.requests] == [
        [line[name] for name in (*same, *tiers)] for line in measured.requests
    ]
    assert {line["attribution"] for line in simulated.requests} == {"simulator"}
    assert [line.keys() for line in simulated.requests] == [line.keys() for line in measured.requests]
    assert [line.keys() for line in simulated.passes] == [line.keys() for line in measured.passes]


def test_it_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from kvbench.cli.main import main; "
        f"code = main(['run', '--runner', 'simulator', '--docs', '2', '--quiet', '--out', {str(tmp_path / 'run')!r}]); "
        "print(code, sorted({'torch', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "0 []"


# Times.


def test_times_are_unknown_without_rates(simulate: Simulate) -> None:
    run = simulate(**SMALL)
    for line in run.requests:
        assert [line[name] for name in ("first_token_s", "last_token_s", "ttft_ms", "restore_ms", "compute_ms")] == [None] * 5
        assert (line["token_times_s"], line["chunk_tokens"], line["preemptions"]) == ([], None, None)
    assert {line["sent_s"] for line in run.requests} == {0.0}  # the clock stands still
    assert {line["wall_s"] for line in run.passes} == {None}
    assert "no time is predicted without rates" in notes_of(run)


def test_times_from_rates(simulate: Simulate) -> None:
    run = simulate(prefill_rate=10_000, restore_rate=500_000, overhead_ms=4)
    ttft = {(row.arm, row.pass_label): row.ttft_ms.p50 for row in summarise(run).passes}
    assert ttft["none", "repeat"] == pytest.approx(4 + 5025 / 10)
    assert ttft["cpu", "repeat"] == pytest.approx(4 + 161 / 10 + 4864 / 500)
    assert run.manifest["rates"] == {"prefill": 10_000, "restore": 500_000, "overhead_ms": 4, "fit": None}
    for line in run.requests:
        assert line["ttft_ms"] == (line["first_token_s"] - line["sent_s"]) * 1e3
        assert line["ttft_ms"] == pytest.approx(4 + line["restore_ms"] + line["compute_ms"])
        assert line["last_token_s"] is None
    assert [row.pass_s for row in summarise(run).passes] == [None] * 6  # output tokens have no time


def requests(count: int) -> list[Request]:
    """Distinct prompts of 40 tokens."""
    return [Request(RequestKey("none", 0, "sequential", 0, number, f"r{number}", number), [number] * 40, 3) for number in range(count)]


def passed(pace: Pace, rates: Rates | None) -> list[RequestRecord]:
    records: list[RequestRecord] = []
    runner = SimulatorRunner(Predictor(ENGINE, CacheSizes(44, 4), rates))
    totals = runner.run_pass(ListSource(requests(2)), ClosedLoop(1), records.append)
    after = runner.run_pass(ListSource(requests(2)), pace, records.append)
    assert totals.counters_after == after.counters_before
    assert after.counters_after["requests"] == 4
    assert (
        after.counters_after["computed_tokens"] + after.counters_after["device_hit_tokens"] == after.counters_after["prompt_tokens"] == 160
    )
    return records


def test_one_request_after_the_other_on_a_clock_of_its_own() -> None:
    records = passed(ClosedLoop(1), Rates(1000, None, 10))
    assert [record.sent_s for record in records] == pytest.approx([0, 0.05, 0.1, 0.15])
    assert [record.end_s for record in records] == pytest.approx([0.05, 0.1, 0.15, 0.2])


def test_an_open_loop_sends_at_its_own_times_and_nobody_waits() -> None:
    records = passed(OpenLoop((0.0, 0.01)), Rates(1000, None, 10))
    assert [record.scheduled_s for record in records[2:]] == pytest.approx([0.1, 0.11])
    assert [record.ttft_ms for record in records[2:]] == pytest.approx([50, 50])


def test_an_open_loop_without_rates_keeps_its_schedule() -> None:
    assert [record.scheduled_s for record in passed(OpenLoop((0.5, 2.0)), None)] == [0, 0, 0.5, 2.0]


# Rates from a measured run.


def made(path: Path, **given: Any) -> Path:
    Made(**given).write(path, cyclic)
    return path


def test_rates_fitted_to_a_run_stand_in_the_manifest_with_their_error(simulate: Simulate, tmp_path: Path) -> None:
    run = simulate(**SMALL, calibrate=made(tmp_path / "measured"))
    rates = run.manifest["rates"]
    assert rates["prefill"] == pytest.approx(1 / 0.085 * 1e3, rel=0.02)  # what the script of the made run computes at
    assert (rates["fit"]["requests"], rates["fit"]["model"], rates["fit"]["status"]) == (60, "tiny", "complete")
    assert 0 < rates["fit"]["median_error"] <= rates["fit"]["worst_error"] < 0.05
    text = " ".join(terminal.render(summarise(run)).split())
    assert "fitted to 60 requests of" in text
    assert f"(relative error: median {rates['fit']['median_error'] * 100:.1f} %, worst {rates['fit']['worst_error'] * 100:.0f} %)" in text
    assert run.manifest["config"]["calibrate"] == str(tmp_path / "measured")


def test_a_rate_that_is_given_goes_over_the_fitted_one(simulate: Simulate, tmp_path: Path) -> None:
    rates = simulate(**SMALL, calibrate=made(tmp_path / "measured"), restore_rate=777_000, overhead_ms=0).manifest["rates"]
    assert (rates["restore"], rates["overhead_ms"]) == (777_000, 0)
    assert rates["prefill"] == pytest.approx(11_765, rel=0.02)


def test_a_run_without_a_tier_tells_no_restore_rate(simulate: Simulate, tmp_path: Path) -> None:
    folder = made(tmp_path / "measured", arms={"none": None})
    with pytest.raises(UsageError, match="loaded from a host tier a known number of tokens; give --restore-rate"):
        simulate(**SMALL, calibrate=folder)
    assert simulate(**SMALL, calibrate=folder, tier="none").manifest["rates"]["restore"] is None
    assert simulate(**SMALL, calibrate=folder, restore_rate=10**6).manifest["rates"]["restore"] == 10**6


def test_a_run_of_hits_alone_tells_no_prefill_rate(simulate: Simulate, tmp_path: Path) -> None:
    Made(arms={"none": None}).write(tmp_path / "measured", lambda *_: Answer(5.0, device=5025))
    with pytest.raises(UsageError, match="computed a known number of tokens; give --prefill-rate"):
        simulate(**SMALL, calibrate=tmp_path / "measured", tier="none")


@pytest.mark.parametrize("folder", ["nowhere", "simulated", "failed"])
def test_a_folder_that_tells_nothing_is_refused_in_one_line(
    simulate: Simulate, tmp_path: Path, capsys: Captured, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if folder == "simulated":
        simulate(**SMALL).path.rename(tmp_path / folder)
    if folder == "failed":
        Made().write(tmp_path / folder, lambda *_: Answer(5.0, device=None, host=None))
    assert main(["run", "--runner", "simulator", "--calibrate", folder, "--out", "new"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert {"nowhere": "not a run folder", "simulated": "is a prediction itself", "failed": "tells no rates"}[folder] in error
    assert not (tmp_path / "new").exists()


def test_another_models_rates_are_said(simulate: Simulate, tmp_path: Path) -> None:
    run = simulate(calibrate=made(tmp_path / "measured"), model="qwen2.5-0.5b")
    assert "the rates were fitted to a run of the model tiny, and this one is of qwen2.5-0.5b" in notes_of(run)
    Made(stop_after=7).write(tmp_path / "stopped", cyclic, "interrupted", ["stopped by the user"])
    again = simulate(**SMALL, calibrate=tmp_path / "stopped", tier="none")
    assert "the run that the rates were fitted to is marked interrupted" in notes_of(again)


# Sizes.


def test_a_pool_of_whole_documents_needs_no_room_for_the_output(simulate: Simulate) -> None:
    given = {"profile": "documents", "docs": 2, "doc_tokens": 100, "question_tokens": 0}
    found = tokens_by_pass(simulate(**given, kv_tokens=100))
    planned = make_plan(PlanConfig.model_validate({**given, "kv_tokens": 100})).passes
    assert found == [(row.device, row.host or 0, row.computed) for row in planned]


def test_a_tier_that_evicts_from_a_watermark_on_is_made_large_enough(simulate: Simulate) -> None:
    run = simulate(profile="vllm")
    assert run.manifest["capacity"]["host_tokens"]["cpu"] == 238 * 256  # 190 chunks are less than 0.8 of it
    assert tokens_by_pass(run)[4] == (0, 48_640, 1_610)
    assert tokens_by_pass(simulate(profile="vllm", host_tokens=237 * 256))[4][1] == 0


def test_a_tier_that_a_watermark_makes_useless_is_no_fault(simulate: Simulate) -> None:
    """It holds all that is read, and evicts it all the same; a measured run of that profile would be right, too."""
    assert simulate(profile="vllm", host_tokens=48_640).manifest["status"] == "complete"


def test_whole_documents_are_held_to_the_token(simulate: Simulate) -> None:
    run = simulate(profile="documents", kv_tokens=50_249, tier="none")
    assert tokens_by_pass(run)[1] == (0, 0, 50_250)
    assert tokens_by_pass(simulate(profile="documents", kv_tokens=50_250, tier="none"))[1] == (50_250, 0, 0)
    assert tokens_by_pass(simulate(profile="documents"))[4] == (0, 50_250, 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kv_tokens": 5024}, "document 0: 5,025 prompt and 8 output tokens need a pool of 5,040 tokens, this one has 5,024"),
        ({"kv_tokens": 5040, "profile": "vllm"}, "need a pool of 5,056 tokens, this one has 5,040; --kv-tokens 5056 holds it"),
        ({"kv_tokens": 5024, "profile": "documents"}, "need a pool of 5,025 tokens, this one has 5,024; --kv-tokens 5025 holds it"),
        ({"doc_tokens": 40_000, "kv_tokens": 80_000, "model": "qwen2.5-0.5b"}, "exceed the 32,768 tokens that model qwen2.5-0.5b was made"),
        ({"model": "nowhere"}, "--model nowhere: no such folder, and no named shape (there are tiny, "),
    ],
)
def test_what_could_never_run_is_refused(simulate: Simulate, given: dict[str, Any], message: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        simulate(**given)
    assert message is None or message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_gibibytes_need_a_rule_for_the_models_kv_and_tokens_do_not(simulate: Simulate, tmp_path: Path) -> None:
    config = {"model_type": "strange", "vocab_size": 500}
    model = write_files(tmp_path / "strange", {"config.json": json.dumps(config)})
    given = {**SMALL, "model": str(model)}
    assert simulate(**given, host_tokens=4096).manifest["model"] == {"name": str(model), "vocab": 500, "bytes_per_token": None}
    with pytest.raises(UsageError, match="give --host-tokens instead of --host-gib"):
        simulate(**given, host_gib=1)
    assert simulate(**SMALL, host_gib=0.001).manifest["capacity"]["host_tokens"]["cpu"] == int(0.001 * 2**30) // 4096
    assert simulate(**SMALL, host_gib=0.001, dtype="float32").manifest["capacity"]["host_tokens"]["cpu"] == int(0.001 * 2**30) // 8192


def test_a_longest_sequence_that_is_no_number_is_refused(simulate: Simulate, tmp_path: Path) -> None:
    config = {"model_type": "llama", "vocab_size": 500, "max_position_embeddings": "4096"}
    model = write_files(tmp_path / "wordy", {"config.json": json.dumps(config)})
    with pytest.raises(UsageError, match="no usable max_position_embeddings"):
        simulate(**SMALL, model=str(model))


# Reports.


def test_the_report_says_that_nothing_was_measured(simulate: Simulate) -> None:
    summary = summarise(simulate(profile="vllm", prefill_rate=10_000, restore_rate=500_000))
    text = " ".join(terminal.render(summary).split())
    assert text.startswith("cyclic | simulator, profile vllm | tiny | 10 documents of 5,011 + 14")
    assert "Predicted TTFT = 0.0 ms + computed ÷ 10,000 tokens/s + loaded ÷ 500,000 tokens/s, as given." in text
    assert "as predicted" not in text
    assert "A load from" not in text  # it would only say the rates again
    assert "first read cost" not in text  # storing is not modelled
    assert "this is a prediction, nothing was measured" in text
    assert (summary.prediction, summary.first_reads, summary.loads, summary.reasons) == (None, (), (), ())
    assert summary.sentences == (
        "Read again in order, of 50,250 prompt tokens 0 come from the device pool, 48,640 from the cpu tier and 1,610 are computed; "
        "on none, 50,250 are computed: predicted TTFT p50 25.8 ms instead of 502 ms, 19.5x.",
    )


UNTIMED = """\
cyclic | simulator, profile engine | tiny | 10 documents of 5,011 + 14
pool 21,520 | cpu tier 48,640 | working set 2.3x
arm   pass         n  TTFT p50  mean  vs none  pass s  device    host  computed
none  sequential  10         –     –        –       –       0       -    50,250
none  repeat      10         –     –        –       –       0       -    50,250
none  reverse     10         –     –        –       –  21,504       -    28,746
cpu   sequential  10         –     –        –       –       0       0    50,250
cpu   repeat      10         –     –        –       –       0  48,640     1,610
cpu   reverse     10         –     –        –       –  21,504  27,776       970

By source (tokens: median of a request)
arm   source       n  TTFT p50  mean  device   host  computed
none  computed    25         –     –       0      -     5,025
none  partial      1         –     –   1,408      -     3,617
none  device hit   4         –     –   5,024      -         1
cpu   computed    10         –     –       0      0     5,025
cpu   host hit    16         –     –       0  4,864       161
cpu   device hit   4         –     –   5,024      0         1

Read again in order, of 50,250 prompt tokens 0 come from the device pool, 48,640
from the cpu tier and 1,610 are computed; on none, 50,250 are computed.

note: this is a prediction, nothing was measured: each request alone, and what
      storing costs a first read left out
note: no time is predicted without rates: --prefill-rate and --restore-rate, or
      --calibrate RUN_DIR

This run does not show:
- documents that differ in length or overlap in part: all have 5,011 tokens and
  share nothing (--overlap, --documents)
- documents that are seldom read again, or asked something else: every later
  pass reads all, with the same question (--reuse, --question vary)

Run folder: """


def test_a_run_without_times_shows_its_tokens(simulate: Simulate) -> None:
    run = simulate()
    assert terminal.render(summarise(run)) == f"{UNTIMED}{run.path}\n"


def every_format(run: Run) -> Sequence[str]:
    def of(summary: Summary) -> list[str]:
        return [render(summary) for render in (terminal.render, markdown.render, to_csv, to_json)]

    return [*of(summarise(run)), *of(summarise(run, per_document=True))]


@pytest.mark.parametrize("rates", [{}, {"prefill_rate": 9000, "restore_rate": 10**6}])
@pytest.mark.parametrize("profile", ["engine", "vllm", "documents"])
def test_every_format_shows_it(simulate: Simulate, profile: str, rates: dict[str, float]) -> None:
    run = simulate(profile=profile, **SMALL, concurrency=3, **rates)
    for text in every_format(run):
        assert "nan" not in text.lower()
        assert "predicted against measured" not in text.lower()
    summary = json.loads(every_format(run)[3])
    assert summary["simulated"] is True
    assert [row["foreseen"] for row in summary["passes"]] == [None] * 6
    assert "requests overlap in this setup" in notes_of(run)


def test_one_arm_is_read_too(simulate: Simulate) -> None:
    run = simulate(tier="none", prefill_rate=10_000)
    assert summarise(run).sentences == (
        "Read again in order, of 50,250 prompt tokens 0 come from the device pool and 50,250 are computed: predicted TTFT p50 502 ms.",
    )
    assert summarise(simulate(**SMALL, tier="none", passes="sequential")).sentences == ()


def test_the_manifest_runs_it_again(simulate: Simulate, tmp_path: Path) -> None:
    first = simulate(**SMALL, profile="vllm", prefill_rate=10_000, restore_rate=500_000)
    config = load_config(first.path / "manifest.json", {})
    again = read_run(session.run(config, tmp_path / "again", Watcher(), []).path)
    assert again.requests == first.requests
    assert replace(again, path=first.path).passes == first.passes


@pytest.mark.parametrize("profile", [ENGINE, VLLM, DOCUMENTS])
def test_a_pass_is_predicted_from_what_the_one_before_left(profile: Any) -> None:
    records: list[RequestRecord] = []
    runner = SimulatorRunner(Predictor(profile, CacheSizes(256, 4)))
    for _ in range(2):
        runner.run_pass(ListSource(requests(2)), ClosedLoop(1), records.append)
    hits = [record.cached_tokens_device for record in records]
    assert hits[:2] == [0, 0]
    assert min(hit or 0 for hit in hits[2:]) >= 36
