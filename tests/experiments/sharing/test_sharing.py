"""`kvbench run sharing` on the engine: what answers to one prompt hold together, and that sharing changes no token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.main import main
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.readings import ExperimentView
from kvbench.experiments.sharing.metrics import SharingRow, held_blocks
from kvbench.experiments.sharing.options import SharingOptions
from kvbench.experiments.sharing.workload import make_workload
from kvbench.runners.base import ClosedLoop, DeviceCapacity
from kvbench.runs.run_folder import Run, read_run
from kvbench.summary.summary import Summary, summarise
from tests.folders import VOCAB

Captured = pytest.CaptureFixture[str]
LENGTHS = ["--requests", "3", "--prompt-tokens", "21", "--output-tokens", "14", "--n", "4", "--beams", "3"]
FACTS = RunnerFacts(20, Path("none"), DeviceCapacity(640, 8))
SIZES = [*LENGTHS, "--block-size", "8", "--kv-tokens", "640"]
"""Each prompt: 2 full blocks and 5 tokens; each answer at its end: 34 tokens with KV, in 5 blocks."""

PROMPT, ENDS, SHARED = 21, 5, 2


def run(out: Path, model: Path, *options: str) -> int:
    return main(["run", "sharing", "--model", str(model), *SIZES, "--repeats", "1", *options, "--quiet", "--out", str(out)])


def measured(out: Path, model: Path, *options: str) -> tuple[Run, Summary]:
    assert run(out, model, *options) == 0
    found = read_run(out)
    return found, summarise(found)


def by_name(summary: Summary) -> dict[tuple[str, str], SharingRow]:
    return {(row.arm, row.pass_name): row for row in summary.rows["sharing"]}


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> tuple[Run, Summary]:
    """Both arms and passes."""
    return measured(tmp_path_factory.mktemp("sharing") / "run", small_model)


def config(*options: tuple[str, Any]) -> SharingOptions:
    return SharingOptions(experiment="sharing", **dict(options))


def changed(run: Run, edit: Any) -> Summary:
    """The summary of the same run with other request lines."""
    return summarise(Run(run.path, run.manifest, [edit(dict(line)) for line in run.requests], run.passes, run.skipped))


def test_samples_hold_the_prompts_blocks_and_a_private_tail_each(default: tuple[Run, Summary]) -> None:
    rows = by_name(default[1])
    shared, copied = rows["copy-on-write", "sampling"], rows["copying", "sampling"]
    assert (shared.blocks, shared.entries) == (3 * (SHARED + 4 * (ENDS - SHARED)), 3 * 4 * ENDS)
    assert (copied.blocks, copied.entries, copied.shared) == (3 * 4 * ENDS, 3 * 4 * ENDS, 1.0)
    assert shared.saved == 1 - 42 / 60
    assert shared.shared == 60 / 42
    assert shared.copied_blocks == 3 * 3  # the last sample of each prompt has the block to itself
    assert copied.copied_blocks == 3 * 3 * 3  # at the fork, all three blocks of the prompt
    assert shared.computed_tokens == copied.computed_tokens == 3 * PROMPT + 3 * 4 * 13


def test_beams_hold_less_than_samples_and_copying_holds_them_whole(default: tuple[Run, Summary]) -> None:
    rows = by_name(default[1])
    shared, copied = rows["copy-on-write", "beam"], rows["copying", "beam"]
    assert copied.blocks == copied.entries == 3 * 3 * ENDS
    assert shared.blocks is not None
    assert 3 * ENDS < shared.blocks < 3 * (SHARED + 3 * (ENDS - SHARED))
    assert shared.copied_blocks is not None
    assert copied.copied_blocks is not None
    assert 0 < shared.copied_blocks < copied.copied_blocks
    assert shared.computed_tokens == copied.computed_tokens == 3 * PROMPT + 3 * 3 * 13


def test_the_fullest_step_is_the_pools_own_peak(default: tuple[Run, Summary]) -> None:
    run, summary = default
    peaks = {(line["arm"], line["pass"]): line["peak_pool_tokens"] // 8 for line in run.passes}
    assert peaks == {key: row.blocks for key, row in by_name(summary).items()}
    assert {len(steps) for steps in held_blocks(ExperimentView(run)).values()} == {14}


def test_every_answer_is_a_record_of_its_own_with_the_tokens_of_the_other_arm(default: tuple[Run, Summary]) -> None:
    run, summary = default
    assert len(run.requests) == 2 * 3 * (4 + 3)
    assert run.manifest["status"] == "complete"
    for row in summary.rows["sharing"]:
        count = 12 if row.pass_name == "sampling" else 9
        assert (row.requests, row.answers, row.finished) == (3, count, count)
        assert (row.same_outputs, row.compared_outputs) == ((None, 0) if row.arm == "copying" else (count, count))
    ids = [line["request_id"] for line in run.requests if (line["arm"], line["pass"], line["position"]) == ("copying", "beam", 1)]
    assert sorted(ids) == [f"copying-r0-p1-1/{number}" for number in range(3)]
    own = [line["output_digest"] for line in run.requests if line["arm"] == "copying"]
    assert len(set(own)) == len(own)  # children have seeds of their own, beams are distinct


def test_a_prompt_is_computed_once_and_the_others_find_it_whole(default: tuple[Run, Summary]) -> None:
    for line in default[0].requests:
        first = line["request_id"].endswith("/0")
        found = (line["cached_tokens_device"], line["cached_tokens_host"], line["computed_tokens"])
        assert found == ((0, 0, PROMPT) if first else (PROMPT, 0, 0))
    assert not default[1].reasons  # a prompt that is shared whole is no warm cache


def test_a_first_pass_that_was_warm_is_noticed_all_the_same(default: tuple[Run, Summary]) -> None:
    def warm(line: dict[str, Any]) -> dict[str, Any]:
        leader = line["request_id"] == "copying-r0-p0-2/0"
        return line | ({"cached_tokens_device": 16, "computed_tokens": 5} if leader else {})

    [reason] = changed(default[0], warm).reasons
    assert reason.startswith("the first pass of arm copying was not cold: 1 request met cached tokens")


@pytest.mark.parametrize("options", [("--kv-tokens", "88"), ("--kv-tokens", "128", "--max-batch-tokens", "7")], ids=str)
def test_under_pressure_the_arms_give_the_same_tokens_and_the_report_says_that_blocks_ran_out(
    tmp_path: Path, small_model: Path, capsys: Captured, options: Sequence[str]
) -> None:
    run, summary = measured(tmp_path / "run", small_model, *options, "--dtype", "float64", "--temperature", "2")
    rows = by_name(summary)
    assert sum(row.preemptions or 0 for row in summary.rows["sharing"]) > 0
    assert sum(row.waited_forks or 0 for row in summary.rows["sharing"] if row.arm == "copying") > 0
    for name, count in (("sampling", 12), ("beam", 9)):
        assert rows["copy-on-write", name].same_outputs == count
    assert not summary.reasons
    text = " ".join(capsys.readouterr().out.split())
    assert "found no room for their copies and were computed again" in text
    assert "blocks ran out: " in text
    assert " waited" in text
    for line in run.requests:
        tiers = [line["cached_tokens_device"], line["cached_tokens_host"], line["computed_tokens"]]
        assert None in tiers or sum(tiers) == PROMPT


def test_other_tokens_are_a_note_in_float32_and_a_reason_in_float64(default: tuple[Run, Summary]) -> None:
    run, _ = default

    def other(line: dict[str, Any]) -> dict[str, Any]:
        return line | ({"output_digest": "0" * 16} if line["request_id"] == "copy-on-write-r0-p1-0/2" else {})

    summary = changed(run, other)
    assert by_name(summary)["copy-on-write", "beam"].same_outputs == 8
    said = "arm copy-on-write, beam: other tokens than copying in 1 answer (the first, copy-on-write-r0-p1-0/2)"
    assert any(note.startswith(said) and "--dtype float64 tells that from a fault" in note for note in summary.notes)
    exact = Run(run.path, run.manifest | {"model": run.manifest["model"] | {"dtype": "float64"}}, run.requests, run.passes, [])
    [reason] = changed(exact, other).reasons
    assert reason == f"{said}: which float64 does not explain: a token was computed from wrong KV"


def test_answers_that_are_missing_or_too_short_are_a_reason(default: tuple[Run, Summary]) -> None:
    run, _ = default
    passes = [line | {"requests": line["requests"] - 1} for line in run.passes[:1]]
    summary = summarise(Run(run.path, run.manifest, run.requests, passes, []))
    assert summary.reasons == ("arm copy-on-write, sampling, repeat 0: 11 of 12 answers came to an end",)

    def shorter(line: dict[str, Any]) -> dict[str, Any]:
        return line | ({"output_tokens": 13} if line["request_id"] == "copying-r0-p0-1/3" else {})

    reasons = changed(run, shorter).reasons
    assert "prompt and output are not as long as asked for, in 1 answer (the first, copying-r0-p0-1/3: 21 + 13)" in reasons


def test_one_answer_to_each_prompt_shares_nothing_and_the_report_says_so(tmp_path: Path, small_model: Path, capsys: Captured) -> None:
    run, summary = measured(tmp_path / "run", small_model, "--n", "1", "--beams", "1")
    for row in summary.rows["sharing"]:
        assert (row.blocks, row.entries, row.copied_blocks) == (3 * ENDS, 3 * ENDS, 0)
    assert {line["request_id"] for line in run.requests if line["arm"] == "copying" and line["pass"] == "sampling"} == {
        f"copying-r0-p0-{position}" for position in range(3)
    }
    text = " ".join(capsys.readouterr().out.split())
    assert "1 sample of each prompt: copy-on-write held 15 blocks at most, as many as copying (each in 1.0 block tables)" in text
    assert "note: --n 1: one answer to each prompt shares nothing; raise it" in text
    assert "note: --beams 1: one answer to each prompt shares nothing; raise it" in text
    assert " 1 sample, 1 beam | pool 640 " in text


def test_the_sentences_read_the_table(default: tuple[Run, Summary]) -> None:
    sampling, beam = default[1].sentences
    mib = 8 * 256 / 2**20
    assert sampling.startswith(
        f"4 samples of each prompt: copy-on-write held 42 blocks at most where copying held 60 ({18 * mib:.2g} MiB, 30 % less; each in 1.4 "
        "block tables), and copied 9 instead of 27; "
    )
    assert sampling.endswith("x, with nothing to tell how much of it is noise (--repeats 3).")
    assert beam.startswith("3 beams of each prompt: copy-on-write held ")


def test_repeats_give_an_interval(tmp_path: Path, small_model: Path) -> None:
    _, summary = measured(tmp_path / "run", small_model, "--repeats", "2", "--requests", "1", "--output-tokens", "4")
    sentences = [sentence for sentence in summary.sentences if not sentence.startswith("Unsteady times")]
    assert [sentence.partition(":")[0] for sentence in sentences] == ["4 samples of each prompt", "3 beams of each prompt"]
    for row in summary.rows["sharing"]:
        assert row.answers == 2 * (4 if row.pass_name == "sampling" else 3)
        assert (row.speed_interval is None) == (row.arm == "copying")
    assert all("x [95 % " in sentence for sentence in sentences)


def test_lengths_may_differ(tmp_path: Path, small_model: Path) -> None:
    run, summary = measured(tmp_path / "run", small_model, "--prompt-tokens", "uniform:1:40", "--output-tokens", "uniform:1:9")
    assert len({line["prompt_tokens"] for line in run.requests}) > 3
    assert not summary.reasons
    for row in summary.rows["sharing"]:
        assert row.arm == "copying" or row.same_outputs == row.answers


@pytest.mark.parametrize("format", ["terminal", "markdown", "html", "csv", "json"])
def test_every_format_shows_it(default: tuple[Run, Summary], capsys: Captured, tmp_path: Path, format: str) -> None:
    capsys.readouterr()
    assert main(["report", str(default[0].path), "--format", format, "--plots", str(tmp_path / "plots")]) == 0
    text = capsys.readouterr().out
    assert "copy-on-write" in text
    assert "beam" in text
    if format == "terminal":
        assert max(map(len, text.splitlines())) <= 80
        title = " ".join(text.partition("\n\n")[0].split())
        assert title.startswith("sharing | engine on cpu | ")
        assert title.endswith("3 requests of 21 + 14 | 4 samples, 3 beams | pool 640 | needed 0.6x")
        for word in ("document", "question", "working set", "tier", "Read again"):
            assert word not in text
    if format == "csv":
        assert len(text.splitlines()) == 1 + 4
        assert text.startswith("arm,pass_name,requests,answers,finished,blocks,mean_blocks,entries,shared,")
    if format == "json":
        assert [row["blocks"] for row in json.loads(text)["sharing"]][:2] == [42, 60]
    plot = (tmp_path / "plots" / "blocks.svg").read_text()
    assert "sampling, copy-on-write: at most 42 blocks; sampling, copying: at most 60 blocks; " in plot


def test_an_interrupted_run_is_shown_as_far_as_it_went(default: tuple[Run, Summary]) -> None:
    run, _ = default
    manifest = run.manifest | {"status": "interrupted", "reasons": ["stopped by the user"]}
    summary = summarise(Run(run.path, manifest, run.requests[:5], [], []))
    [row] = summary.rows["sharing"]
    assert (row.arm, row.answers, row.blocks, row.tokens_per_s, row.saved) == ("copy-on-write", 5, None, None, None)
    assert "interrupted after 5 of 42 requests: stopped by the user" in summary.notes
    assert summary.sentences == ("One of the arms did not end, so there is nothing to compare: what is saved stands beside copying.",)


def test_two_runs_can_be_compared(default: tuple[Run, Summary], capsys: Captured) -> None:
    path = str(default[0].path)
    assert main(["compare", path, path]) == 0
    assert "copy-on-write  beam " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--beams", str(VOCAB + 1)), f"--beams {VOCAB + 1}: each beam begins with another token, and the vocabulary has {VOCAB};"),
        (("--n", "0"), "--n: Input should be greater than or equal to 1 (got '0')"),
        (("--beams", "-1"), "--beams: Input should be greater than or equal to 1 (got '-1')"),
        (("--block-size", "2048"), "--kv-tokens 640 holds no block of --block-size 2048"),
        (("--kv-tokens", "32"), "prompt 0: 21 prompt and 14 output tokens need 5 blocks of 8, the pool has 4 (32 tokens); --kv-tokens 40"),
        (("--runner", "simulator"), "the experiment sharing needs --runner engine (the runner is simulator)"),
        (("--tier", "cpu"), "--tier does not apply: the experiment is sharing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_clear_line(tmp_path: Path, small_model: Path, capsys: Captured, options: Sequence[str], error: str) -> None:
    assert run(tmp_path / "run", small_model, *options) == 2
    told = capsys.readouterr().err
    assert error in told
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_prompts_are_all_different_and_the_same_in_every_arm_and_repeat() -> None:
    workload = make_workload(config(("requests", 5), ("prompt_tokens", 1), ("output_tokens", 3)), FACTS)
    passes = workload.passes
    assert [(plan.name, plan.index, plan.doc_ids) for plan in passes] == [("sampling", 0, [0, 1, 2, 3, 4]), ("beam", 1, [5, 6, 7, 8, 9])]
    requests = [request for plan in passes for request in workload.requests("copying", 0, plan)]
    again = [request for plan in passes for request in workload.requests("copy-on-write", 3, plan)]
    assert len({tuple(request.prompt) for request in requests}) == 10
    assert [(one.prompt, one.seed) for one in requests] == [(one.prompt, one.seed) for one in again]
    assert len({request.seed for request in requests}) == 10
    assert [(one.samples, one.beams, one.temperature) for one in requests] == [(4, 0, 1.0)] * 5 + [(1, 4, 0.0)] * 5
    assert workload.pace(passes[0]) == ClosedLoop(5)


def test_what_the_manifest_says_of_the_workload() -> None:
    workload = make_workload(config(("requests", 2), ("prompt_tokens", 10), ("output_tokens", 3), ("n", 2), ("beams", 5)), FACTS)
    assert workload.describe() == {
        "passes": ["sampling", "beam"],
        "requests_per_pass": 2,
        "answers": [4, 10],
        "prompt_tokens": [[10, 10], [10, 10]],
        "output_tokens": [[3, 3], [3, 3]],
    }
    assert workload.working_set_tokens() == 5 * 2 * 12
    assert [(arm.name, arm.differences()) for arm in workload.arms] == [
        ("copy-on-write", {"prefix_cache": False, "sample_usage": True}),
        ("copying", {"copy_on_write": False, "prefix_cache": False, "sample_usage": True}),
    ]
