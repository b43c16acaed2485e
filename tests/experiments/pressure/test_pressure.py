"""`kvbench run pressure` on the engine: what each arm does when KV runs out, and that no arm changes a token."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cli.main import main
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.pressure.metrics import PressureRow
from kvbench.experiments.pressure.options import PressureOptions
from kvbench.experiments.pressure.workload import held_blocks, make_workload
from kvbench.runners.base import ClosedLoop, DeviceCapacity
from kvbench.runs.run_folder import Run, read_run
from kvbench.summary.summary import Summary, summarise

Captured = pytest.CaptureFixture[str]
SIZES = ["--requests", "6", "--prompt-tokens", "20", "--output-tokens", "24", "--kv-tokens", "144", "--block-size", "8"]
"""Six requests that hold 6 blocks each at their end (43 tokens), and 18 blocks: all six start, three can end."""

BYTES = 256
"""KV of a token of the small model in float32: 2 · 2 layers · 2 KV heads · 8 · 4."""


def run(out: Path, model: Path, *options: str) -> int:
    return main(["run", "pressure", "--model", str(model), *SIZES, "--repeats", "1", *options, "--quiet", "--out", str(out)])


def measured(out: Path, model: Path, *options: str) -> tuple[Run, Summary]:
    assert run(out, model, *options) == 0
    found = read_run(out)
    return found, summarise(found)


def by_arm(summary: Summary) -> dict[str, PressureRow]:
    return {row.arm: row for row in summary.rows["pressure"]}


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> tuple[Run, Summary]:
    """All four arms."""
    return measured(tmp_path_factory.mktemp("pressure") / "run", small_model)


def test_every_request_ends_with_the_tokens_of_the_ample_arm(default: tuple[Run, Summary]) -> None:
    run, summary = default
    assert [row.arm for row in summary.rows["pressure"]] == ["ample", "recompute", "swap", "reserve"]
    for row in summary.rows["pressure"]:
        assert (row.requests, row.finished, row.same_outputs, row.compared_outputs) == (6, 6, 6, 6)
    assert {(line["prompt_tokens"], line["output_tokens"]) for line in run.requests} == {(20, 24)}
    assert len({line["output_digest"] for line in run.requests}) == 6  # and the requests are not all the same one
    assert run.manifest["status"] == "complete"


def test_only_recompute_and_swap_preempt_and_each_recovers_in_its_own_way(default: tuple[Run, Summary]) -> None:
    _, summary = default
    arms = by_arm(summary)
    ample, recompute, swap, reserve = (arms[name] for name in ("ample", "recompute", "swap", "reserve"))
    assert (ample.preemptions, reserve.preemptions, ample.stalls.count, reserve.stalls.count) == (0, 0, 0, 0)
    for row in (recompute, swap):
        assert row.preemptions is not None
        assert row.preemptions >= row.stalls.count > 0
    assert recompute.rebuilt_tokens is not None
    assert recompute.rebuilt_tokens > 0
    assert recompute.computed_tokens == 6 * 43 + recompute.rebuilt_tokens
    assert recompute.wasted == recompute.rebuilt_tokens / recompute.computed_tokens
    assert (recompute.swapped_out_bytes, recompute.swapped_in_bytes) == (0, 0)
    assert (swap.rebuilt_tokens, swap.wasted, swap.swap_full, swap.computed_tokens) == (0, 0.0, 0, 6 * 43)
    assert swap.swapped_out_bytes is not None
    assert swap.swapped_out_bytes % (8 * BYTES) == 0
    assert swap.swapped_out_bytes >= (swap.swapped_in_bytes or 0) > 0


def test_a_reservation_runs_fewer_at_once(default: tuple[Run, Summary]) -> None:
    arms = by_arm(default[1])
    assert {name: row.peak_running for name, row in arms.items()} == {"ample": 6, "recompute": 6, "swap": 6, "reserve": 3}
    assert {name: row.pool_tokens for name, row in arms.items()} == {"ample": 288, "recompute": 144, "swap": 144, "reserve": 144}


def test_the_parts_of_every_stall_sum_to_the_gap_the_user_saw(default: tuple[Run, Summary]) -> None:
    run, summary = default
    stalls = [(line, stall) for line in run.requests for stall in line["stalls"]]
    assert len(stalls) == sum(row.stalls.count for row in summary.rows["pressure"]) > 0
    for line, stall in stalls:
        gap = line["token_times_s"][stall["after_token"]] - line["token_times_s"][stall["after_token"] - 1]
        parts = [stall[f"{part}_ms"] for part in ("waiting", "restoring", "recomputing", "first_step")]
        assert stall["total_ms"] == pytest.approx(gap * 1e3) == pytest.approx(sum(parts))
    for row in summary.rows["pressure"]:
        if row.stalls.sum is not None:
            told = [stall["total_ms"] for line, stall in stalls if line["arm"] == row.arm]
            assert row.stalls.sum.total_ms == pytest.approx(sum(told))
            assert row.stalls.longest is not None
            assert row.stalls.longest.total_ms == max(told)


@pytest.mark.parametrize("temperature", ["0.9", "30"])
def test_sampled_requests_keep_their_tokens_too(tmp_path: Path, small_model: Path, default: tuple[Run, Summary], temperature: str) -> None:
    options = ["--temperature", temperature, "--victim", "least-computed", "--dtype", "float64"]
    run, summary = measured(tmp_path / "run", small_model, *options)
    assert [(row.same_outputs, row.compared_outputs) for row in summary.rows["pressure"]] == [(6, 6)] * 4
    assert sum(row.preemptions or 0 for row in summary.rows["pressure"]) > 0
    assert not {line["output_digest"] for line in run.requests} & {line["output_digest"] for line in default[0].requests}


def test_a_full_swap_space_falls_back_to_recompute_and_the_report_says_so(tmp_path: Path, small_model: Path, capsys: Captured) -> None:
    gib = 4 * 8 * BYTES / 2**30  # four blocks: one request at most
    _, summary = measured(tmp_path / "run", small_model, "--arm", "ample,swap", "--swap-gib", str(gib))
    row = by_arm(summary)["swap"]
    assert row.swap_full is not None
    assert row.preemptions is not None
    assert 0 < row.swap_full < row.preemptions
    assert (row.rebuilt_tokens or 0) > 0
    note = f"the swap space was full at {row.swap_full} of {row.preemptions} preemptions, which were recomputed instead; raise --swap-gib"
    assert note in " ".join(capsys.readouterr().out.split())


def test_a_pool_that_holds_all_is_said_to_show_nothing(tmp_path: Path, small_model: Path, capsys: Captured) -> None:
    _, summary = measured(tmp_path / "run", small_model, "--kv-tokens", "512", "--arm", "ample,recompute")
    assert by_arm(summary)["recompute"].preemptions == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "fits: the pool (512) holds all requests at their end (258): nothing runs short; lower --kv-tokens" in out
    assert "no tier can show" not in out


def test_the_report_fits_80_columns_and_speaks_of_no_document(default: tuple[Run, Summary], capsys: Captured) -> None:
    capsys.readouterr()
    assert main(["report", str(default[0].path)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    title = " ".join(text.partition("\n\n")[0].split())
    assert title.startswith("pressure | engine on cpu | ")
    assert title.endswith("6 requests of 20 + 24 | pool 144 | needed 1.8x")
    for word in ("document", "question", "working set", "tier", "re-read"):
        assert word not in text
    assert ("Cheaper here: " in text) != ("Neither recovery was clearly cheaper here" in text)
    assert "Device pool and swap space are both RAM here" in " ".join(text.split())


@pytest.mark.parametrize("form", ["csv", "json", "html", "markdown"])
def test_other_formats_have_a_row_an_arm(tmp_path: Path, default: tuple[Run, Summary], capsys: Captured, form: str) -> None:
    capsys.readouterr()
    assert main(["report", str(default[0].path), "--format", form]) == 0
    text = capsys.readouterr().out
    if form == "json":
        rows = json.loads(text)["pressure"]
        assert [row["arm"] for row in rows] == ["ample", "recompute", "swap", "reserve"]
        assert rows[2]["stalls"]["median"]["restoring_ms"] > 0
    elif form == "csv":
        header, *lines = text.splitlines()
        assert [line.partition(",")[0] for line in lines] == ["ample", "recompute", "swap", "reserve"]
        assert {"itl_ms_p99", "share_low", "stalls", "stall_sum_waiting_ms"} <= set(header.split(","))
        assert "{" not in text
    else:
        assert text.count("recompute") > 3
        assert "document" not in text.partition("<style>")[0] + text.partition("</style>")[2]


def test_plots_are_drawn(tmp_path: Path, default: tuple[Run, Summary]) -> None:
    assert main(["report", str(default[0].path), "--plots", str(tmp_path)]) == 0
    assert {"ttft.svg", "stalls.svg"} <= {file.name for file in tmp_path.iterdir()}
    assert "sources.svg" not in {file.name for file in tmp_path.iterdir()}


def test_a_run_can_be_compared_with_another_and_run_again(tmp_path: Path, default: tuple[Run, Summary], capsys: Captured) -> None:
    path = default[0].path
    assert main(["run", "--config", str(path / "manifest.json"), "--quiet", "--out", str(tmp_path / "again")]) == 0
    again = read_run(tmp_path / "again")
    assert [line["output_digest"] for line in sorted(again.requests, key=_place)] == [
        line["output_digest"] for line in sorted(default[0].requests, key=_place)
    ]
    capsys.readouterr()
    assert main(["compare", str(path), str(tmp_path / "again")]) == 0
    assert "recompute" in capsys.readouterr().out
    other = ["run", "--config", str(path / "manifest.json"), "--victim", "least-computed", "--out", str(tmp_path / "other")]
    assert main([*other, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["compare", str(path), str(tmp_path / "other")]) == 2
    assert "victim" in capsys.readouterr().err


def test_intervals_come_with_repeats(tmp_path: Path, small_model: Path) -> None:
    run, summary = measured(tmp_path / "run", small_model, "--arm", "ample,recompute", "--repeats", "2", "--requests", "4")
    ample, recompute = summary.rows["pressure"]
    assert (ample.share, ample.share_interval) == (1.0, None)
    assert recompute.share_interval is not None
    assert recompute.share_interval[0] <= (recompute.share or 0) <= recompute.share_interval[1]
    assert (recompute.requests, recompute.compared_outputs, len(run.passes)) == (8, 8, 4)
    assert "[95 % " in " ".join(summary.sentences)  # the first may say that times were unsteady


def _place(line: dict[str, Any]) -> tuple[str, int]:
    return line["arm"], line["position"]


# Bad input: refused before anything is measured, in one line.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--output-tokens", "200"],
            "request 0: 20 prompt and 200 output tokens need 28 blocks of 8, the pool has 18 (144 tokens); --kv-tokens 224 holds it, or "
            "lower --prompt-tokens or --output-tokens",
        ),
        (
            ["--arm", "reserve", "--output-tokens", "200"],
            "request 0: 20 prompt and 200 output tokens need 28 blocks of 8, the pool has 18 (144 tokens); --kv-tokens 224 holds it, or "
            "lower --prompt-tokens or --output-tokens",
        ),
        (
            ["--prompt-tokens", "500"],
            "small was made for; lower --prompt-tokens or --output-tokens",
        ),
        (["--swap-gib", "0"], "--swap-gib: Input should be greater than 0, or 'auto' (got '0')"),
        (["--swap-gib", "1", "--arm", "recompute"], "--swap-gib does not apply: no arm swaps (--arm swap)"),
        (["--kv-tokens", "8", "--block-size", "16"], "--kv-tokens 8 holds no block of --block-size 16"),
        (["--requests", "0"], "--requests: Input should be greater than or equal to 1, or 'auto' (got '0')"),
        (["--arm", "ample,ample"], "--arm: each arm may be named once (got ['ample,ample'])"),
        (["--swap-gib", "1000000"], "exceed the"),
        (["--host-tokens", "256"], "--host-tokens does not apply: the experiment is pressure"),
        (["--runner", "simulator"], "the experiment pressure needs --runner engine or vllm (the runner is simulator)"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(
    tmp_path: Path, small_model: Path, capsys: Captured, options: Sequence[str], message: str
) -> None:
    assert run(tmp_path / "run", small_model, *options) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("kvbench: error: ")
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "run").exists()


# The workload.

POOL = DeviceCapacity(2048, 16)


def config(**options: Any) -> PressureOptions:
    return PressureOptions(experiment="pressure", **options)


def facts(vocab: int) -> RunnerFacts:
    return RunnerFacts(vocab, Path("none"), POOL)


def test_the_default_is_16_requests_of_128_and_128_all_at_once_on_half_of_what_they_need() -> None:
    workload = make_workload(config(), facts(1000))
    assert set(workload.lengths) == {(128, 128)}
    assert workload.pace(workload.passes[0]) == ClosedLoop(16)
    assert {arm.name: (arm.device_tokens, arm.swap_tokens, arm.allocation) for arm in workload.arms} == {
        "ample": (4096, None, "on-demand"),
        "recompute": (None, None, "on-demand"),
        "swap": (None, 4096, "on-demand"),
        "reserve": (None, None, "reserve"),
    }
    assert all(arm.prefix_cache and arm.victim == "newest" for arm in workload.arms)


def test_a_pace_that_was_asked_for_is_kept() -> None:
    assert make_workload(config(concurrency=4), facts(1000)).pace(None) is None  # type: ignore[arg-type]  # the session's own
    assert make_workload(config(rate=2.0), facts(1000)).pace(None) is None  # type: ignore[arg-type]


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(60, 500))
def test_requests_are_the_same_for_a_seed_and_share_no_first_token(seed: int, requests: int, vocab: int) -> None:
    made = [make_workload(config(seed=seed, requests=requests, prompt_tokens="uniform:1:9"), facts(vocab)) for _ in range(2)]
    ours, again = ([(item.prompt, item.output_tokens, item.seed) for item in one.requests("swap", 0, one.passes[0])] for one in made)
    assert ours == again
    assert len({prompt[0] for prompt, _, _ in ours}) == requests
    assert len({number for _, _, number in ours}) == requests
    assert all(0 <= token < vocab for prompt, _, _ in ours for token in prompt)
    assert [len(prompt) for prompt, _, _ in ours] == [size.prompt_tokens for size in made[0].sizes()]


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200)), min_size=1, max_size=20), st.integers(1, 64))
def test_the_ample_pool_holds_every_request_at_its_end_and_at_most_a_block_more(lengths: list[tuple[int, int]], block: int) -> None:
    needed = [-(-(prompt + output - 1) // block) for prompt, output in lengths]
    assert sum(needed) <= held_blocks(lengths, block) <= sum(needed) + len(needed)


def test_arms_differ_in_nothing_but_what_they_are_named_for(default: tuple[Run, Summary]) -> None:
    named = ("name", "command")
    arms = {arm["name"]: {key: arm[key] for key in arm if key not in named} for arm in default[0].manifest["arms"]}
    assert arms == {
        "ample": {"device_tokens": 288},
        "recompute": {},
        "swap": {"swap_tokens": 288},
        "reserve": {"allocation": "reserve"},
    }
    sent = {line["arm"]: [] for line in default[0].requests}  # type: dict[str, list[tuple[int, int]]]
    for line in default[0].requests:
        sent[line["arm"]].append((line["position"], line["prompt_tokens_sent"]))
    assert all(sorted(one) == sorted(other) for one, other in itertools.pairwise(sent.values()))
