"""`kvbench run fragmentation`: the same tokens in every arm, waste as counted by hand, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.main import main
from kvbench.experiments.at_once.workload import AtOnce
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.fragmentation.metrics import FragmentationRow, Shares, shares_of
from kvbench.experiments.fragmentation.options import FragmentationOptions
from kvbench.experiments.fragmentation.workload import make_workload
from kvbench.reports.formats import terminal
from kvbench.reports.formats.csv import to_csv
from kvbench.reports.formats.json import to_json
from kvbench.runners.base import DeviceCapacity
from kvbench.runs.run_folder import Run, read_events, read_run
from kvbench.summary.summary import Summary, summarise

Captured = pytest.CaptureFixture[str]
SIZES = ["--requests", "20", "--prompt-tokens", "uniform:4:20", "--output-tokens", "uniform:2:24", "--max-length", "64"]
POOL = ["--kv-tokens", "128", "--block-sizes", "1,16,32"]
ARMS = ["reserve-max", "reserve-own", "paged-1", "paged-16", "paged-32"]


def run(out: Path, model: Path, *options: str) -> int:
    return main(["run", "fragmentation", "--model", str(model), "--repeats", "1", *options, "--quiet", "--out", str(out)])


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> tuple[Run, Summary]:
    out = tmp_path_factory.mktemp("fragmentation") / "run"
    assert run(out, small_model, *SIZES, *POOL, "--repeats", "2") == 0
    found = read_run(out)
    return found, summarise(found)


def by_arm(summary: Summary) -> dict[str, FragmentationRow]:
    return {row.arm: row for row in summary.rows["fragmentation"]}


def workload(**options: Any) -> AtOnce:
    facts = RunnerFacts(100, Path("none"), DeviceCapacity(8192, 16))
    return make_workload(FragmentationOptions(experiment="fragmentation", **options), facts)


def test_every_arm_gives_every_request_the_same_tokens(default: tuple[Run, Summary]) -> None:
    found, summary = default
    assert [row.arm for row in summary.rows["fragmentation"]] == ARMS
    digests: dict[int, set[str]] = {}
    for line in found.requests:
        digests.setdefault(line["position"], set()).add(line["output_digest"])
    assert all(len(same) == 1 for same in digests.values())
    assert len(set.union(*digests.values())) > 5
    assert found.manifest["status"] == "complete"
    assert {(row.requests, row.finished) for row in summary.rows["fragmentation"]} == {(40, 40)}


def test_the_waste_at_the_end_is_what_each_arm_must_reserve(default: tuple[Run, Summary]) -> None:
    found, summary = default
    lengths = found.manifest["workload"]
    longest = [prompt + output - 1 for prompt, output in zip(lengths["prompt_tokens"], lengths["output_tokens"], strict=True)]

    def waste(reserved: list[int]) -> float:
        return 1 - float(sum(longest)) / sum(reserved)

    rows = by_arm(summary)
    assert rows["reserve-max"].waste_end == pytest.approx(waste([64] * 20))
    assert rows["paged-1"].waste_end == 0
    for arm, size in {"reserve-own": 16, "paged-16": 16, "paged-32": 32}.items():
        assert rows[arm].waste_end == pytest.approx(waste([-(-tokens // size) * size for tokens in longest]))
    assert rows["reserve-max"].end_reserved == 64


def test_more_run_at_once_where_less_is_reserved(default: tuple[Run, Summary]) -> None:
    rows = by_arm(default[1])
    base, own, paged = rows["reserve-max"], rows["reserve-own"], rows["paged-16"]
    assert (base.at_once, base.times, base.peak_running, base.preemptions) == (2.0, 1.0, 2, 0)  # 128 ÷ 64
    assert 2 < (own.at_once or 0) < (paged.at_once or 0)
    assert paged.times == (paged.at_once or 0) / 2
    assert own.preemptions == 0
    assert (rows["paged-1"].preemptions or 0) > 0  # what is not kept can run out


def test_the_shares_of_the_pool_sum_to_one_and_agree_with_the_waste(default: tuple[Run, Summary]) -> None:
    for row in default[1].rows["fragmentation"]:
        assert row.pool_slots == 128
        assert 0 < row.short_steps < row.steps
        assert row.shares is not None
        parts = [row.shares.used, row.shares.for_later, row.shares.never_used, row.shares.scattered, row.shares.free]
        assert sum(parts) == pytest.approx(1)
        assert min(parts) >= 0
        assert row.waste == pytest.approx(1 - row.shares.used / sum(parts[:3]))
        assert row.shares.scattered == 0 or row.arm == "reserve-own"
        assert row.shares.never_used == 0 or row.arm != "paged-1"


def test_repeats_count_the_same_and_give_an_interval(default: tuple[Run, Summary]) -> None:
    found, summary = default
    for row in summary.rows["fragmentation"]:
        assert row.steps % 2 == row.short_steps % 2 == 0
        assert (row.speed_interval is None) == (row.arm == "reserve-max")
    steps = [(event["slots"], event["used"]) for line in found.requests for event in ends(found, line["request_id"])]
    assert len(steps) == 200


def ends(found: Run, request_id: str) -> list[dict[str, Any]]:
    return [event for event in read_events(found.path, {request_id})[request_id] if event["event"] == "finish"]


STEP = {"reserved": 12, "used": 6, "unneeded": 2, "free": 4, "room": 2, "running": 3, "waiting": 1}


def test_what_is_free_is_scattered_only_if_it_would_be_enough() -> None:
    assert shares_of([]) is None
    assert shares_of([STEP | {"needed": 4}]) == Shares(6 / 16, 4 / 16, 2 / 16, 4 / 16, 0)
    assert shares_of([STEP | {"needed": 5}]) == Shares(6 / 16, 4 / 16, 2 / 16, 0, 4 / 16)
    assert shares_of([STEP | {"needed": 2}]) == Shares(6 / 16, 4 / 16, 2 / 16, 0, 4 / 16)  # it waits for the step's budget, not for room
    both = shares_of([STEP | {"needed": 4}, STEP | {"needed": None}])
    assert both == Shares(6 / 16, 4 / 16, 2 / 16, 4 / 32, 4 / 32)
    assert both.waste == 0.5


def test_the_report_fits_80_columns_and_reads_the_table(default: tuple[Run, Summary]) -> None:
    summary = default[1]
    text = terminal.render(summary)
    assert max(len(line) for line in text.splitlines()[1:-1]) <= 80  # first and last name folders
    assert "20 requests of uniform:4:20 + uniform:2:24 | at most 64 | pool 128" in text
    rows = by_arm(summary)
    told = " ".join(text.split())
    base, paged = rows["reserve-max"], rows["paged-16"]
    assert f"Reserved to 64 slots a request, {(base.waste or 0) * 100:.1f} % of what was reserved held no token" in told
    assert f"taken in blocks of 16, {(paged.waste or 0) * 100:.1f} %" in told
    assert f"{paged.at_once:.1f} requests ran at once on paged-16 instead of 2.0, {paged.times:.1f} times as many" in told
    assert "kindest reservation" in told
    assert "StaticCache" in told
    for word in ("document", "question", "working set", "tier", "prompt was"):
        assert word not in text, word


def test_each_format_has_the_rows(default: tuple[Run, Summary], tmp_path: Path, capsys: Captured) -> None:
    found, summary = default
    lines = to_csv(summary).splitlines()
    assert len(lines) == 6
    assert {"arm", "share_used", "share_scattered", "waste_end", "speed_low"} <= set(lines[0].split(","))
    assert [row["arm"] for row in json.loads(to_json(summary))["fragmentation"]] == ARMS
    assert main(["report", str(found.path), "--format", "html", "--plots", str(tmp_path / "plots"), "-o", str(tmp_path / "page")]) == 0
    page, picture = (tmp_path / "page").read_text(), (tmp_path / "plots" / "waste.svg").read_text()
    assert "What the slots of the pool were" in page
    assert all(arm in picture for arm in ARMS)
    assert main(["report", str(found.path), "--format", "markdown"]) == 0
    assert "| paged-16" in capsys.readouterr().out


def test_a_run_is_compared_with_itself_without_a_difference(default: tuple[Run, Summary], capsys: Captured) -> None:
    path = str(default[0].path)
    assert main(["compare", path, path]) == 0
    assert "reserve-own" in capsys.readouterr().out


def test_where_no_request_waits_for_room_nothing_is_said_of_a_full_pool(tmp_path: Path, small_model: Path, capsys: Captured) -> None:
    assert run(tmp_path / "run", small_model, *SIZES, "--kv-tokens", "1280", "--block-sizes", "16") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "every request found room at once in reserve-max, reserve-own, paged-16" in told
    assert "times as many" not in told
    row = by_arm(summarise(read_run(tmp_path / "run")))["paged-16"]
    assert (row.shares, row.at_once, row.times, row.waste) == (None, None, None, None)
    assert row.waste_all is not None


def test_lengths_are_drawn_from_the_distribution_and_cut_as_a_server_does() -> None:
    made = workload(prompt_tokens="uniform:1:200", output_tokens="uniform:1:200", max_length=128, requests=200, kv_tokens=4096)
    lengths = made.lengths
    assert [len(prompt) for prompt in made.prompts] == [prompt for prompt, _ in lengths]
    assert max(prompt + output for prompt, output in lengths) == 128
    assert any(prompt == 127 and output == 1 for prompt, output in lengths)
    assert 0 < made.describe()["cut_requests"] < 200
    assert len({prompt[0] for prompt in made.prompts}) == 100  # as many beginnings as token ids
    again = workload(prompt_tokens="uniform:1:200", output_tokens="uniform:1:200", max_length=128, requests=200, kv_tokens=4096)
    assert again == made


def test_arms_are_alike_but_for_how_they_take_room() -> None:
    made = workload(block_sizes=(8,), kv_tokens=4096)
    own = {"block_size": 16, "allocation": "reserve", "contiguous": True, "prefix_cache": False, "sample_usage": True}
    assert {arm.name: arm.differences() for arm in made.arms} == {
        "reserve-max": own | {"reserve_tokens": 2048},
        "reserve-own": own,
        "paged-8": {"block_size": 8, "prefix_cache": False, "sample_usage": True},
    }


def test_own_lengths_are_run(tmp_path: Path, small_model: Path, capsys: Captured) -> None:
    file = tmp_path / "log.csv"
    file.write_text("prompt_tokens,output_tokens\n5,3\n9,20\n12,7\n")
    assert run(tmp_path / "run", small_model, "--lengths", str(file), "--max-length", "32", "--kv-tokens", "64", "--block-sizes", "4") == 0
    found = read_run(tmp_path / "run")
    assert [(line["prompt_tokens"], line["output_tokens"]) for line in sorted(found.requests[:3], key=lambda line: line["position"])] == [
        (5, 3), (9, 20), (12, 7),
    ]  # fmt: skip
    said = capsys.readouterr().out
    assert f"3 requests of {file.name}" in said
    assert "--lengths FILE" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-length", "200", "--kv-tokens", "128"], "--max-length 200 takes 13 blocks of 16, and the pool (--kv-tokens 128) has 8"),
        (["--max-length", "40", "--kv-tokens", "100", "--block-sizes", "64,256"],
         "--block-sizes 256: the pool (--kv-tokens 100) holds no block of it"),
        (["--max-length", "70", "--kv-tokens", "100", "--block-sizes", "64"], "takes 2 blocks of 64, and the pool (--kv-tokens 100) has 1"),
        (["--max-length", "992", "--kv-tokens", "1000", "--block-sizes", "40"],
         "25 blocks of 40, and the pool (--kv-tokens 1000) has 24; --kv-tokens 1008 holds one request"),
        (["--max-length", "5000", "--kv-tokens", "8192"], "tokens that model"),
        (["--max-length", "64", "--prompt-tokens", "60", "--output-tokens", "8"], "--max-length 64 is less than 60 of --prompt-tokens and"),
        (["--max-length", "64", "--prompt-tokens", "64"], "--max-length 64 is less than 64 of --prompt-tokens and 1"),
        (["--block-size", "8"], "the arms have block sizes of their own (--block-sizes)"),
        (["--block-sizes", "16,16"], "each block size may be named once"),
        (["--lengths", "missing.csv", "--max-length", "64"], "--lengths missing.csv: cannot be read"),
        (["--runner", "vllm"], "the experiment fragmentation needs --runner engine"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, small_model: Path, capsys: Captured, options: list[str], said: str) -> None:
    assert run(tmp_path / "run", small_model, *options) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_request_longer_than_what_is_reserved_is_named_by_its_line(tmp_path: Path, small_model: Path, capsys: Captured) -> None:
    file = tmp_path / "log.csv"
    file.write_text("5,3\n60,5\n")
    assert run(tmp_path / "run", small_model, "--lengths", str(file), "--max-length", "64", "--kv-tokens", "256") == 2
    assert "line 2: 60 + 5 tokens are more than --max-length 64" in capsys.readouterr().err
