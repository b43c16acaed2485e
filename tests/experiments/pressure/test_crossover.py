"""Recompute against restore: rows from run folders, where they cross, what is said of it, and whole runs with a context."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cli.main import main
from kvbench.drawing.layout import TERMINAL
from kvbench.drawing.width import NARROWEST
from kvbench.experiments.pressure.crossover import CrossoverRow, crossings, flops, read, rows
from kvbench.experiments.pressure.plots import crossover_plots
from kvbench.experiments.pressure.reading import READING
from kvbench.experiments.readings import ExperimentView
from kvbench.runners.engine.model.floors import layer_products, measure_floors
from kvbench.runners.engine.model.model import load_model
from kvbench.runs.run_folder import read_run
from kvbench.summary.summary import summarise

Captured = pytest.CaptureFixture[str]


def row(context: int, ratio: float | None, **other: Any) -> CrossoverRow:
    known = CrossoverRow(context, 1, 10.0, 4.0, 1.0, 4.0, ratio, None, 5.0, 2.0, "cpu", None)
    return replace(known, **other)


def said(*found: CrossoverRow) -> str:
    return next(read(found))


def test_a_crossing_lies_between_its_neighbours_on_logarithmic_scales() -> None:
    assert crossings([row(100, 0.5), row(400, 2.0)]) == [pytest.approx(200)]
    assert crossings([row(400, 2.0), row(100, 0.5)]) == [pytest.approx(200)]  # in whatever order they come
    assert crossings([row(100, 0.5), row(200, 0.25), row(400, 2.0)]) == [pytest.approx(200 * 2 ** (2 / 3))]
    assert crossings([row(100, 2.0), row(400, 0.5), row(1600, 2.0)]) == [pytest.approx(200), pytest.approx(800)]
    assert crossings([row(100, 2.0), row(400, 3.0)]) == crossings([row(100, None), row(400, 3.0)]) == crossings([]) == []


@given(st.lists(st.tuples(st.integers(16, 10**6), st.floats(0.01, 100)), min_size=2, max_size=8, unique_by=lambda item: item[0]))
def test_every_crossing_has_one_way_before_it_and_the_other_after(points: list[tuple[int, float]]) -> None:
    ordered = sorted(points)
    for where in crossings([row(*point) for point in points]):
        before = [ratio for context, ratio in ordered if context <= where + 1e-6]
        after = [ratio for context, ratio in ordered if context >= where - 1e-6]
        assert (before[-1] - 1) * (after[0] - 1) <= 0


def test_what_is_said_of_several_histories() -> None:
    assert said(row(100, 0.5), row(400, 2.0)) == "Up to a history of about 200 tokens recomputing was faster, from there on restoring."
    assert said(row(512, 12.0), row(4096, 40.0)) == (
        "No crossing in the range: restoring was faster at every history, 12.0x at 512 tokens and 40.0x at 4,096 tokens."
    )
    assert said(row(512, 0.5), row(4096, 0.25)) == (
        "No crossing in the range: recomputing was faster at every history, 2.0x at 512 tokens and 4.0x at 4,096 tokens."
    )
    assert said(row(100, 2.0), row(400, 0.5), row(1600, 2.0)) == (
        "Recomputing and restoring overtake each other more than once (at about 200, 800 tokens)."
    )


def test_what_is_said_of_one_history() -> None:
    assert said(row(512, 2.0)) == (
        "At a history of 512 tokens, to the next token, recomputing took 10.0 ms, restoring and a step 5.00 ms: restoring is 2.0x as fast."
    )
    assert said(row(512, 0.5, ratio_range=(0.4, 0.6), repeats=3)).endswith("recomputing is 2.0x as fast [0.40x to 0.60x in 3 repeats].")
    assert said(row(512, 1.02)).endswith(": both take about as long.")
    assert said(row(512, None)).startswith("Nothing to compare: the arms recompute and swap are both needed")
    assert list(read([])) == []


def test_ram_and_a_simulated_link_are_named() -> None:
    assert "Device and host are both RAM here" in list(read([row(512, 2.0)]))[-1]
    assert list(read([row(512, 2.0, link="link simulated at 16 GB/s")]))[-1] == "Copies went over a link simulated at 16 GB/s."
    assert len(list(read([row(512, 2.0, device="cuda")]))) == 2
    [(heading, table)] = READING.joint_tables({"crossover": (row(10**6, 2.0, link="link simulated at 16 GB/s"),)}, TERMINAL)
    assert "link simulated at 16 GB/s" in heading
    assert max(map(len, [heading, *table.splitlines()])) <= NARROWEST
    [plot] = crossover_plots([row(512, 0.5, link="link simulated at 16 GB/s"), row(1024, 2.0)])
    assert "link simulated at 16 GB/s" in plot.element
    assert crossover_plots([row(512, 2.0), row(1024, None)]) == ()


def test_operations_of_a_history_are_counted_as_stated() -> None:
    model, floors = {"layers": 2, "head_dim": 8}, {"heads": 4, "matrix_parameters": 1000}
    assert flops(10, model, floors) == 2 * 1000 * 10 + 4 * 2 * 4 * 8 * 100 / 2


def test_floors_are_of_the_weights_that_are_multiplied_embeddings_left_out() -> None:
    model = load_model("tiny", torch.device("cpu"), torch.float32)
    matrices = [weight for name, weight in model.network.named_parameters() if weight.dim() == 2 and "embed" not in name]
    shapes = sorted((outputs, inputs) for inputs, outputs in layer_products(model)) * model.shape.layers
    assert sorted(tuple(weight.shape) for weight in matrices) == sorted(shapes)
    floors = measure_floors(model, 64, 2048)
    assert floors["matrix_parameters"] == sum(weight.numel() for weight in matrices)
    assert floors["heads"] == 4
    assert 1e8 < floors["matrix_flops_per_s"] < 1e15
    assert 1e7 < floors["copy_bytes_per_s"] < 1e13


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> Path:
    out = tmp_path_factory.mktemp("crossover") / "run"
    options = ["--context", "48", "--repeats", "2", "--block-size", "8", "--max-batch-tokens", "24"]
    assert main(["run", "pressure", "--model", str(small_model), *options, "--link-gbps", "0.01", "--quiet", "--out", str(out)]) == 0
    return out


def test_a_run_brings_exactly_the_history_back_in_both_arms(folder: Path) -> None:
    run = read_run(folder)
    counted = {
        line["arm"]: [
            line["counters_after"][name] for name in ("preemptions", "recomputed_tokens", "swapped_in_tokens", "device_hit_tokens")
        ]
        for line in run.passes
    }
    assert counted == {"ample": [0, 0, 0, 0], "recompute": [1, 48, 0, 0], "swap": [1, 0, 48, 0]}
    assert run.manifest["status"] == "complete"
    assert len({line["output_digest"] for line in run.requests if line["position"] == 1}) == 1


def test_its_row_is_the_median_of_its_stalls_with_the_floors_of_its_manifest(folder: Path) -> None:
    run = read_run(folder)
    [found] = summarise(run).rows["crossover"]
    stalls = {(line["arm"], line["repeat"]): line["stalls"][0] for line in run.requests if line["stalls"]}
    back = [stalls["swap", repeat] for repeat in (0, 1)]
    recompute = [stalls["recompute", repeat]["recomputing_ms"] + stalls["recompute", repeat]["first_step_ms"] for repeat in (0, 1)]
    assert (found.context, found.repeats) == (48, 2)
    assert all(stalls["recompute", repeat]["first_step_ms"] > 0 for repeat in (0, 1))  # two steps of 24 rebuild, a third gives the token
    assert found.recompute_ms == pytest.approx(sum(recompute) / 2)
    assert found.restore_ms == pytest.approx(sum(stall["restoring_ms"] for stall in back) / 2)
    ratios = [one / (stall["restoring_ms"] + stall["first_step_ms"]) for one, stall in zip(recompute, back, strict=True)]
    assert found.ratio == pytest.approx(sum(ratios) / 2)
    assert found.ratio_range is not None
    assert found.ratio_range == pytest.approx((min(ratios), max(ratios)))
    floors = run.manifest["floors"]
    assert found.recompute_floor_ms == pytest.approx(flops(48, run.manifest["model"], floors) / floors["matrix_flops_per_s"] * 1e3)
    assert found.restore_floor_ms == pytest.approx(48 * 256 / 0.01e9 * 1e3)  # the link is slower than the copy


def test_no_copy_is_faster_than_the_link(folder: Path) -> None:
    [found] = summarise(read_run(folder)).rows["crossover"]
    took = 48 * 256 / 0.01e9 * 1e3
    assert found.restore_ms is not None
    assert found.restore_ms >= took - 1e-6
    assert found.swap_out_ms is not None
    assert found.swap_out_ms >= took - 1e-6


@pytest.mark.parametrize("format", ["terminal", "markdown", "html", "csv", "json"])
def test_every_output_says_that_the_link_is_simulated(folder: Path, format: str, capsys: Captured) -> None:
    assert main(["report", str(folder), "--format", format]) == 0
    assert "link simulated at 0.01 GB/s" in " ".join(capsys.readouterr().out.split())


def test_the_manifest_names_the_link_and_a_comparison_too(folder: Path, capsys: Captured) -> None:
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["environment"]["link"] == "simulated at 0.01 GB/s"
    main(["compare", str(folder), str(folder)])
    out = " ".join(capsys.readouterr().out.split())
    assert "link simulated at 0.01 GB/s" in out


def test_a_history_that_did_not_come_back_whole_gives_no_time(folder: Path) -> None:
    run = read_run(folder)
    for line in run.passes:
        if line["arm"] == "swap":
            line["counters_after"]["swapped_in_tokens"] -= 1
    [found] = rows(ExperimentView(run))
    assert found.recompute_ms is not None
    assert (found.restore_ms, found.step_ms, found.swap_out_ms, found.ratio) == (None, None, None, None)


def test_a_sweep_has_one_table_with_its_sentence_and_a_picture(small_model: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "sweep"
    options = ["--model", str(small_model), "--sweep", "context=16,40", "--repeats", "1", "--block-size", "8", "--quiet", "--out", str(out)]
    assert main(["run", "pressure", *options]) == 0
    printed = capsys.readouterr().out
    head = printed.split("context=16\n")[0]
    assert "Recompute against restore (ms to the next token)" in head
    assert [line.split()[0] for line in head.splitlines() if line.strip()[:2] in ("16", "40")] == ["16", "40"]
    assert "history" in head.split("ratio")[-1]
    assert main(["report", str(out), "--plots", str(tmp_path / "plots"), "--format", "json"]) == 0
    assert (tmp_path / "plots" / "crossover.svg").exists()
    assert isinstance(json.loads(capsys.readouterr().out)["crossings"], list)


@pytest.mark.parametrize("options", [["cyclic", "--tier", "none"], ["fragmentation"], ["pressure", "--arm", "ample,recompute"]])
def test_a_link_that_nothing_goes_over_is_wrong_use(options: list[str], capsys: Captured) -> None:
    assert main(["run", *options, "--link-gbps", "16"]) == 2
    assert "--link-gbps does not apply: no arm copies between device and host (--tier cpu, --arm swap)" in capsys.readouterr().err
