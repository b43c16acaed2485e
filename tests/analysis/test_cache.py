"""Tokens by tier, the source of a request, and load against compute."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pandas as pd
import pytest

from kvbench.analysis.cache import sources
from kvbench.analysis.run_info import RunInfo
from kvbench.summary.summary import summarise
from tests.made import Answer, Made, cyclic

INFO = RunInfo(Made().manifest())


def test_tokens_of_the_default_run_are_the_known_values(tmp_path: Path) -> None:
    rows = summarise(Made().write(tmp_path / "run", cyclic)).passes
    assert [(row.device, row.host, row.computed) for row in rows] == [
        (0, 0, 50250), (0, 0, 50250), (21504, 0, 28746),
        (0, 0, 50250), (0, 48640, 1610), (21504, 27776, 970),
    ]  # fmt: skip
    assert rows[4].host_hit_rate == pytest.approx(48640 / 50250)
    assert rows[5].device_hit_rate == pytest.approx(21504 / 50250)


def test_repeats_that_agree_show_the_tokens_of_one(tmp_path: Path) -> None:
    one = summarise(Made().write(tmp_path / "one", cyclic)).passes
    three = summarise(Made(repeats=3).write(tmp_path / "three", cyclic)).passes
    assert [(row.device, row.host, row.computed) for row in one] == [(row.device, row.host, row.computed) for row in three]


def test_repeats_that_differ_show_their_rounded_mean_and_say_so(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(50.0, host=repeat * 256 if arm == "cpu" and index == 1 and doc == 0 else 0)

    summary = summarise(Made(repeats=3).write(tmp_path / "run", script))
    assert [row.host for row in summary.passes if row.arm == "cpu"] == [0, 256, 0]
    assert any("rounded mean" in note for note in summary.notes)


def test_one_unknown_request_makes_the_pass_unknown(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(50.0, device=None, host=None) if (arm, index, doc) == ("cpu", 1, 4) else Answer(50.0)

    rows = summarise(Made().write(tmp_path / "run", script)).passes
    assert (rows[4].device, rows[4].host, rows[4].computed, rows[4].host_hit_rate) == (None, None, None, None)
    assert rows[3].computed == 50250


def test_a_repeat_cut_short_is_left_out_of_the_tokens(tmp_path: Path) -> None:
    run = Made(repeats=2, arms={"none": None}, stop_after=35).write(tmp_path / "run", cyclic, status="interrupted")
    row = summarise(run).passes[0]
    assert (row.ttft_ms.n, row.computed, row.repeats_agree) == (15, 50250, True)


@pytest.mark.parametrize(
    ("device", "host", "computed", "name"),
    [
        (0, 0, 5025, "computed"),
        (5024, 0, 1, "device hit"),
        (4995, 0, 30, "device hit"),  # question 14 + block 16
        (4994, 0, 31, "partial"),
        (1408, 0, 3617, "partial"),
        (0, 4864, 161, "host hit"),
        (1408, 3456, 161, "host hit"),
        (0, 4755, 270, "host hit"),  # question 14 + chunk 256
        (0, 4754, 271, "partial"),
        (nan, nan, nan, "unknown"),
        (0, nan, 10, "unknown"),
    ],
)
def test_source(device: float, host: float, computed: float, name: str) -> None:
    row = pd.DataFrame({"device": [device], "host": [host], "computed": [computed]}, dtype="float64")
    assert sources(row, INFO).tolist() == [name]


def test_rows_by_source(tmp_path: Path) -> None:
    rows = summarise(Made().write(tmp_path / "run", cyclic)).sources
    assert [(row.arm, row.source, row.ttft_ms.n) for row in rows] == [
        ("none", "computed", 25), ("none", "partial", 1), ("none", "device hit", 4),
        ("cpu", "computed", 10), ("cpu", "host hit", 16), ("cpu", "device hit", 4),
    ]  # fmt: skip
    host = rows[4]
    assert (host.device, host.host, host.computed) == (0, 4864, 161)


def test_load_against_compute(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        if arm == "cpu" and index == 1:
            return Answer(20.0, host=4864, restore_ms=4.0, compute_ms=12.0)
        if index == 2:  # a device hit pays a step for its one token: no measure of what a token costs
            return Answer(4.0, device=5024, compute_ms=3.0)
        return Answer(510.0, compute_ms=502.5 if arm == "none" and index == 0 else None)

    cost = summarise(Made().write(tmp_path / "run", script)).loads[0]
    assert (cost.arm, cost.loads, cost.tokens, cost.load_ms) == ("cpu", 10, 4864, 4.0)
    assert cost.compute_ms == pytest.approx(486.4)
    assert cost.ratio == pytest.approx(121.6)
    assert cost.tokens_per_s == pytest.approx(4864 / 0.004)
    assert cost.gib_per_s == pytest.approx(4864 * 8192 / 0.004 / 2**30)


@pytest.mark.parametrize("answer", [Answer(20.0, host=4864), Answer(20.0, host=4864, restore_ms=4.0), Answer(20.0, compute_ms=3.0)])
def test_no_load_or_no_computed_request_is_no_comparison(tmp_path: Path, answer: Answer) -> None:
    assert summarise(Made().write(tmp_path / "run", lambda *_: answer)).loads == ()
