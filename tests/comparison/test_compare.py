"""Comparing runs: verdicts, lost hits, what is refused, thresholds, and the formats for CI; mostly through ``main``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import kvbench
from kvbench.analysis.noise import Sides, own_noise
from kvbench.cli import colour as colours
from kvbench.cli.main import main
from kvbench.comparison.baseline import Baseline, reduce
from kvbench.comparison.baseline_file import read_side, write_baseline
from kvbench.comparison.compare import Comparison, Line, compare
from kvbench.comparison.thresholds import parse
from kvbench.comparison.verdict import Change, ChangeVerdict, as_shares, interval, judge
from kvbench.drawing.layout import MARKDOWN
from kvbench.errors import UsageError
from kvbench.reports import comparison as report
from kvbench.reports import github, junit
from kvbench.reports.formats.json import to_json
from kvbench.runs.records import RequestError, RequestRecord
from kvbench.runs.run_folder import Run, read_run
from tests.made import Answer, Made, Script, cyclic
from tests.reports.test_html import Reader

Captured = pytest.CaptureFixture[str]
REPEATED = Made(repeats=3)


def slower(factor: float, seed: int = 0, arm_only: str | None = None) -> Script:
    """The default run with 1 % of noise, times multiplied by ``factor``."""
    rng = np.random.default_rng(seed)

    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        own = factor if arm_only in (None, arm) else 1.0
        return replace(answer, ttft_ms=answer.ttft_ms * own * (1 + 0.01 * rng.standard_normal()))

    return script


def lost_hit(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    """Document 4 is no longer found in the second pass; nothing takes longer."""
    answer = slower(1.0)(arm, repeat, index, position, doc)
    return replace(answer, host=0) if (arm, index, doc) == ("cpu", 1, 4) else answer


def compared(tmp_path: Path, base: Script, new: Script, made: Made = REPEATED, new_made: Made | None = None, **options: Any) -> Comparison:
    return compare(reduce(made.write(tmp_path / "base", base)), reduce((new_made or made).write(tmp_path / "new", new)), **options)


def line(comparison: Comparison, arm: str, label: str, figure: str) -> Line:
    return next(item for item in comparison.lines if (item.arm, item.pass_label, item.metric.name) == (arm, label, figure))


def test_a_slowdown_is_found_and_the_same_is_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, slower(1.0), slower(1.2, 1))
    times = [item for item in found.lines if item.metric.name.startswith("ttft")]
    assert {item.verdict for item in times} == {ChangeVerdict.WORSE}
    assert all(item.change == pytest.approx(0.2, abs=0.03) and item.low < item.change < item.high for item in times)  # type: ignore[operator]
    assert {item.verdict for item in found.lines if item.metric.name.startswith("speedup")} == {ChangeVerdict.SAME}
    assert any("the engine as a whole or the machine, not the tier" in note for note in found.notes)
    again = compared(tmp_path / "again", slower(1.0), slower(1.0, 1))
    assert again.regressions == ()
    assert {item.verdict for item in again.lines} == {ChangeVerdict.SAME}


def test_a_slower_tier_shows_in_its_speedup(tmp_path: Path) -> None:
    found = compared(tmp_path, slower(1.0), slower(1.3, 1, "cpu"))
    assert line(found, "cpu", "repeat", "speedup_p50").word == "slower"
    assert line(found, "none", "repeat", "ttft_p50").verdict == ChangeVerdict.SAME


def by_pass(factors: dict[tuple[str, int], float], seed: int = 0) -> Script:
    """The default run with 1 % of noise, times multiplied by a factor of the arm and pass."""
    steady = slower(1.0, seed)

    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = steady(arm, repeat, index, position, doc)
        return replace(answer, ttft_ms=answer.ttft_ms * factors.get((arm, index), 1.0))

    return script


AS_RUNS_DIFFER = {("none", 0): 1.03, ("none", 1): 1.04, ("none", 2): 1.05, ("cpu", 0): 1.09, ("cpu", 1): 1.24, ("cpu", 2): 1.17}
"""Two standard deviations between two real runs of unchanged code, roughly (reports/compare-2026-11-30.jsonl)."""


def test_two_runs_that_differ_from_pass_to_pass_may_just_differ(tmp_path: Path) -> None:
    found = compared(tmp_path, by_pass({}), by_pass(AS_RUNS_DIFFER, 1))
    assert found.regressions == ()
    changed = line(found, "cpu", "repeat", "ttft_p50")
    assert changed.change == pytest.approx(0.24, abs=0.03)
    assert changed.verdict == ChangeVerdict.INCONCLUSIVE
    assert any("a base of more runs" in said for said in found.unsaid)


@pytest.mark.parametrize("passes", [[1], [1, 2], [0, 1, 2]])
def test_a_slower_pass_among_steady_ones_is_found_and_so_is_a_slower_arm(tmp_path: Path, passes: list[int]) -> None:
    found = compared(tmp_path, by_pass({}), by_pass({("cpu", index): 1.24 for index in passes}, 1))
    worse = {(item.arm, item.pass_label) for item in found.regressions}
    assert worse == {("cpu", ("sequential", "repeat", "reverse")[index]) for index in passes}


def test_of_two_passes_one_that_takes_three_times_as_long_is_found(tmp_path: Path) -> None:
    made = Made(arms={"cpu": 51200}, passes=("sequential", "repeat"), repeats=3)
    found = compared(tmp_path, by_pass({}), by_pass({("cpu", 1): 3.0}, 1), made)
    assert {item.pass_label for item in found.regressions} == {"repeat"}


def test_faster_is_no_regression(tmp_path: Path) -> None:
    found = compared(tmp_path, slower(1.0), slower(0.7, 1))
    assert found.regressions == ()
    assert line(found, "cpu", "repeat", "ttft_p50").word == "faster"


def test_a_lost_hit_is_a_regression_whatever_the_clock_says(tmp_path: Path) -> None:
    found = compared(tmp_path, slower(1.0), lost_hit)
    assert {(item.metric.name, item.word) for item in found.regressions} == {("host", "hits lost"), ("computed", "more computed")}
    assert line(found, "cpu", "repeat", "host").detail == "1 of 10 requests, first number 5 in the pass: 4,864 to 0"


def test_a_lost_hit_is_not_made_good_by_another_that_was_gained(tmp_path: Path) -> None:
    def swapped(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(100.0, device=5024 if index and doc == (3 if arm == "cpu" else 4) else 0)

    def base(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(100.0, device=5024 if index and doc == 4 else 0)

    found = compared(tmp_path, base, swapped)
    cell = line(found, "cpu", "repeat", "device")
    assert (cell.base, cell.new, cell.verdict) == (5024, 5024, ChangeVerdict.WORSE)
    assert line(found, "none", "repeat", "device").verdict == ChangeVerdict.SAME


def test_a_device_hit_that_the_host_serves_is_lost_on_the_device(tmp_path: Path) -> None:
    def of(device: int, host: int) -> Script:
        return lambda arm, repeat, index, position, doc: Answer(9.0, device if index else 0, host if index and arm == "cpu" else 0)

    found = compared(tmp_path, of(4864, 0), of(0, 4864), replace(REPEATED, arms={"cpu": 51200}))
    assert [line(found, "cpu", "repeat", tier).verdict for tier in ("device", "host", "computed")] == [
        ChangeVerdict.WORSE, ChangeVerdict.MOVED, ChangeVerdict.SAME,
    ]  # fmt: skip


def test_overlapping_requests_are_compared_over_repeats(tmp_path: Path) -> None:
    def hits(share: float) -> Script:
        rng = np.random.default_rng(int(share * 100))
        return lambda arm, repeat, index, *_: Answer(9.0, host=int(4864 * (share + 0.01 * rng.random())) if arm == "cpu" and index else 0)

    made = replace(REPEATED, config={"concurrency": 4})
    assert line(compared(tmp_path / "a", hits(0.9), hits(0.9), made), "cpu", "repeat", "host").verdict == ChangeVerdict.SAME
    found = line(compared(tmp_path / "b", hits(0.9), hits(0.5), made), "cpu", "repeat", "host")
    assert found.word == "hits lost"
    assert found.change == pytest.approx(-0.39, abs=0.02)


def test_one_repeat_is_too_few_for_times_and_enough_for_tokens(tmp_path: Path, capsys: Captured) -> None:
    found = compared(tmp_path, slower(1.0), slower(2.0), Made())
    assert {item.verdict for item in found.lines if item.metric.unit in ("ms", "x", "output tokens/s")} == {ChangeVerdict.INCONCLUSIVE}
    assert {item.verdict for item in found.lines if item.metric.unit == "tokens"} == {ChangeVerdict.SAME}
    arguments = ["compare", str(tmp_path / "base"), str(tmp_path / "new")]
    assert main(arguments) == 0
    assert "kvbench: warning: 36 of 57 figures are inconclusive: too few samples (--repeats 3" in capsys.readouterr().err
    assert main([*arguments, "--strict"]) == 3


def untimed(record: RequestRecord) -> RequestRecord:
    """The request as a run without times has it."""
    return replace(record, first_token_s=None, last_token_s=None, token_times_s=[], chunk_tokens=[])


@pytest.mark.parametrize("rates", [[], ["--prefill-rate", "5000", "--restore-rate", "50000"]], ids=["tokens", "times"])
def test_simulated_runs_can_pass_a_strict_gate(tmp_path: Path, capsys: Captured, rates: list[str]) -> None:
    command = ["run", "--runner", "simulator", "--docs", "4", "--doc-tokens", "300", "--kv-tokens", "688", "--quiet"]
    for name in ("base", "new"):
        assert main([*command, *rates, "--out", str(tmp_path / name)]) == 0
    arguments = ["compare", str(tmp_path / "base"), str(tmp_path / "new"), "--strict", "--format", "json"]
    capsys.readouterr()
    assert main([*arguments, "--fail-on", "host_hit_rate[*,repeat] < 50%"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    assert {item["word"] for item in lines} == {"same"}
    assert any(item["unit"] == "ms" for item in lines) == bool(rates)


def test_a_slower_prediction_is_slower_without_repeats(tmp_path: Path) -> None:
    made = Made(config={"runner": "simulator"})
    found = compared(tmp_path, cyclic, lambda *place: replace(cyclic(*place), ttft_ms=cyclic(*place).ttft_ms * 1.1), made)
    assert {item.word for item in found.lines if item.metric.name.startswith("ttft")} == {"slower"}
    assert {item.word for item in found.lines if item.metric.unit == "x"} == {"same"}


def test_figures_that_one_run_lacks_are_unknown_and_no_matter_of_samples(tmp_path: Path) -> None:
    found = compared(tmp_path, slower(1.0), slower(1.0, 1), new_made=replace(REPEATED, edit=untimed))
    assert found.unsaid == (
        "30 of 57 figures are unknown in one run or both (ttft_p50, ttft_mean, tpot_p50, e2el_p50, speedup_p50, speedup_mean)",
    )
    both = compared(tmp_path / "both", cyclic, cyclic, replace(REPEATED, edit=untimed))
    assert (both.unsaid, {item.metric.unit for item in both.lines}) == ((), {"tokens", "", "output tokens/s"})


# Arms without a host tier.


def test_only_arms_with_a_tier_have_tokens_from_it(tmp_path: Path) -> None:
    def arms(found: Comparison) -> set[str]:
        return {item.arm for item in found.lines if item.metric.name == "host"}

    made = replace(REPEATED, arms={"none": None, "redis": None})  # a tier of unknown size
    assert arms(compared(tmp_path / "tiers", cyclic, cyclic, made)) == {"redis"}
    pressure = replace(REPEATED, arms={"ample": None, "swap": None}, config={"experiment": "pressure"})
    found = compared(tmp_path / "pressure", cyclic, cyclic, pressure)
    assert arms(found) == set()
    row = next(text for text in report.to_terminal(found).splitlines() if text.startswith("swap") and "50,250" in text)
    assert row.split()[2:5] == ["0", "-", "50,250"]


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_baseline_file_of_any_format_tells_which_arms_have_a_tier(tmp_path: Path, version: str) -> None:
    for config, arms, tiers in (({}, {"none": None, "cpu": 51200}, {"cpu"}), ({"experiment": "pressure"}, {"swap": None}, set())):
        run = replace(REPEATED, arms=arms, config=config).write(tmp_path / str(len(arms)), cyclic)
        file = tmp_path / f"{len(arms)}.json"
        file.write_text(json.dumps(json.loads(write_baseline(reduce(run))) | {"format": f"kvbench.baseline/{version}"}), encoding="utf-8")
        assert {cell.arm for cell in read_side(file).cells if cell.tier} == tiers


# What is refused, and what is only said.


def test_another_subject_is_refused_by_its_fields(tmp_path: Path) -> None:
    other = replace(REPEATED, device_tokens=30000, config={"seed": 1})
    with pytest.raises(UsageError, match=r"seed: 0 and 1; device_tokens: 21520 and 30000.*--allow seed --allow device_tokens"):
        compared(tmp_path, cyclic, cyclic, new_made=other)
    allowed = compared(tmp_path / "allowed", cyclic, cyclic, new_made=other, allow=("seed", "device_tokens"))
    assert any(note.startswith("allowed to differ: seed 0 to 1") for note in allowed.notes)
    with pytest.raises(UsageError, match="--allow sed: is no field of these runs; there are "):
        compared(tmp_path / "typo", cyclic, cyclic, allow=("sed",))


def test_an_open_loop_is_not_compared_with_a_closed_one(tmp_path: Path) -> None:
    closed, open_loop = replace(REPEATED, config={"concurrency": 1}), replace(REPEATED, config={"rate": 5.0, "arrivals": "poisson"})
    with pytest.raises(UsageError, match="pace: 1 in flight and 5 requests/s, poisson"):
        compared(tmp_path, cyclic, cyclic, made=closed, new_made=open_loop)


def edited(run: Run, change: Callable[[dict[str, Any]], Any]) -> Baseline:
    change(run.manifest)
    return reduce(run)


def test_on_another_machine_times_do_not_count(tmp_path: Path) -> None:
    base = reduce(REPEATED.write(tmp_path / "base", slower(1.0)))
    new = edited(REPEATED.write(tmp_path / "new", slower(1.5, 1)), lambda manifest: manifest["environment"].update(cpu="other"))
    found = compare(base, new, fail_on=["ttft_p50[cpu,repeat] > +10%", "ttft_p50[cpu,repeat] > 1"])
    assert line(found, "cpu", "repeat", "ttft_p50").verdict == ChangeVerdict.WORSE
    assert found.regressions == ()
    assert [outcome.rule for outcome in found.failed_rules] == ["ttft_p50[cpu,repeat] > 1"]
    assert any("another machine (cpu made to other)" in note for note in found.notes)
    lost = edited(REPEATED.write(tmp_path / "lost", lost_hit), lambda manifest: manifest["environment"].update(cpu="other"))
    assert {item.metric.name for item in compare(base, lost).regressions} == {"host", "computed"}


def test_other_versions_are_said(tmp_path: Path) -> None:
    base = edited(REPEATED.write(tmp_path / "base", cyclic), lambda manifest: manifest["environment"].update(packages={"torch": "2.13"}))
    new = edited(REPEATED.write(tmp_path / "new", cyclic), lambda manifest: manifest["environment"].update(packages={"torch": "2.14"}))
    assert "changed between the runs: torch 2.13 to 2.14" in compare(base, new).notes


def test_an_interrupted_run_is_compared_as_far_as_it_went(tmp_path: Path) -> None:
    found = compared(tmp_path, cyclic, cyclic, Made(), Made(stop_after=35))
    assert {(item.arm, item.pass_label) for item in found.lines} == {("none", "sequential"), ("none", "repeat"), ("none", "reverse")}
    assert ("cpu", "repeat") in found.missing
    assert any("cpu, repeat: the new run did not finish this pass" in remark for remark in found.unsaid)
    with pytest.raises(UsageError, match="no pass of an arm is finished in both"):
        compared(tmp_path / "early", cyclic, cyclic, Made(), Made(stop_after=5))


def test_an_unfinished_arm_is_missed_in_every_experiment(tmp_path: Path) -> None:
    made = Made(arms={"ample": None, "swap": None}, config={"experiment": "pressure"})
    base, new = (
        edited(one.write(tmp_path / name, cyclic), lambda manifest: manifest["config"].pop("tier"))
        for name, one in (("base", made), ("new", replace(made, stop_after=35)))
    )
    assert ("swap", "repeat") in compare(base, new).missing


def test_an_invalid_run_ends_with_four(tmp_path: Path, capsys: Captured) -> None:
    REPEATED.write(tmp_path / "base", cyclic)
    REPEATED.write(tmp_path / "bad", cyclic, status="invalid", reasons=["the first pass was not cold"])
    arguments = ["compare", str(tmp_path / "base"), str(tmp_path / "bad")]
    assert main(arguments) == 4
    assert "the first pass was not cold" in capsys.readouterr().err
    assert main([*arguments, "--allow", "status"]) == 0
    assert main(["baseline", str(tmp_path / "bad")]) == 4


def test_a_folder_is_judged_by_its_files_as_its_report_judges_it(tmp_path: Path, capsys: Captured) -> None:
    """The manifest says complete, as before the checks that find it, or before the folder was changed."""

    def warm(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        return replace(answer, host=256 if (arm, index) == ("cpu", 0) else answer.host)

    good, bad = REPEATED.write(tmp_path / "good", cyclic).path, REPEATED.write(tmp_path / "bad", warm).path
    assert main(["report", str(bad), "--format", "json"]) == 0
    (reason,) = json.loads(capsys.readouterr().out)["reasons"]
    assert "was not cold" in reason
    for command in (["compare", str(good), str(bad)], ["compare", str(bad), str(good)], ["baseline", str(bad)]):
        assert main(command) == 4
        assert reason in " ".join(capsys.readouterr().err.split())
    assert kvbench.compare(good, bad).untrusted == (f"{bad}: {reason}",)
    assert kvbench.compare(good, good).untrusted == ()
    assert main(["compare", str(good), str(bad), "--allow", "status"]) != 4


def test_judging_a_folder_needs_no_torch(tmp_path: Path) -> None:
    path = REPEATED.write(tmp_path / "run", cyclic).path
    code = (
        "import sys; from kvbench.cli.main import main; "
        f"codes = [main(['compare', {str(path)!r}, {str(path)!r}]), main(['baseline', {str(path)!r}])]; "
        "print(codes, sorted({'torch', 'transformers', 'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[0, 0] []"


def test_a_truncated_last_line_and_one_request_are_no_obstacle(tmp_path: Path) -> None:
    base = Made(docs=1, repeats=3).write(tmp_path / "base", cyclic)
    path = Made(docs=1, repeats=3, stop_after=17).write(tmp_path / "new", cyclic).path / "requests.jsonl"
    path.write_bytes(path.read_bytes() + b'{"arm":')
    assert compare(reduce(base), read_side(tmp_path / "new")).regressions == ()


def test_failed_requests_are_counted_and_never_timed(tmp_path: Path) -> None:
    def failing(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        return replace(answer, ttft_ms=1e6, error=RequestError("http", "500")) if (arm, index, doc) == ("cpu", 1, 3) else answer

    found = compared(tmp_path, cyclic, failing)
    assert line(found, "cpu", "repeat", "failed").new == 3
    assert line(found, "cpu", "repeat", "ttft_mean").new == pytest.approx(line(found, "cpu", "repeat", "ttft_mean").base, rel=0.01)


@pytest.mark.parametrize("name", ["nowhere", "manifest"])
def test_what_is_neither_a_run_nor_a_baseline_is_one_line(tmp_path: Path, capsys: Captured, name: str) -> None:
    Made().write(tmp_path / "run", cyclic)
    path = {"nowhere": tmp_path / "nowhere", "manifest": tmp_path / "run" / "manifest.json"}[name]
    assert main(["compare", str(path), str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_baseline_compares_as_the_run_it_was_made_of(tmp_path: Path, capsys: Captured) -> None:
    REPEATED.write(tmp_path / "base", slower(1.0))
    REPEATED.write(tmp_path / "new", lost_hit)
    file = tmp_path / "baseline.json"
    assert main(["baseline", str(tmp_path / "base"), "-o", str(file)]) == 0
    assert file.stat().st_size < 16_000
    of_run = compare(read_side(tmp_path / "base"), read_side(tmp_path / "new"))
    of_file = compare(read_side(file), read_side(tmp_path / "new"))
    assert of_file.lines == of_run.lines
    file.write_text(file.read_text(encoding="utf-8").replace("kvbench.baseline/2", "kvbench.baseline/0"), encoding="utf-8")
    assert main(["compare", str(file), str(tmp_path / "new")]) == 2
    assert "format is 'kvbench.baseline/0', this kvbench reads 'kvbench.baseline/2'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("cells", 0, "ttft_ms", "p50"), "x", "cells.0.ttft_ms.p50: Input should be a valid number"),
        (("cells", 0, "repeats", 0, "p50"), "x", "cells.0.repeats.0.p50: Input should be a valid number"),
        (("cells", 0, "repeats", 0, "mean"), float("nan"), "cells.0.repeats.0.mean: Input should be a finite number"),
        (("cells", 0, "requests"), [[1, 2]], "cells.0.requests.0"),
        (("cells", 0, "requests"), [[-1, 0, 0, 5]], "cells.0.requests.0.0"),
        (("cells", 0, "requests"), [[1, 0, 0, 10**40]], "cells.0.requests.0.3"),
        (("cells",), {}, "cells: "),
        (("subject",), [], "subject: Input should be a valid dictionary"),
        (("machine",), 1, "machine: "),
        (("status",), None, "status: "),
        (("runs",), 0, "runs: "),
        (("subject", "experiment"), ["cyclic", 1], "measured different things"),
    ],
)
def test_a_field_of_another_type_is_one_line(tmp_path: Path, capsys: Captured, place: tuple[Any, ...], value: Any, words: str) -> None:
    run = REPEATED.write(tmp_path / "run", cyclic)
    text = json.loads(write_baseline(reduce(run)))
    owner = text
    for step in place[:-1]:
        owner = owner[step]
    owner[place[-1]] = value
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps(text), encoding="utf-8")
    assert main(["compare", str(file), str(run.path)]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1


# Several runs as one base.


def runs_of(tmp_path: Path, factors: list[float], made: Made = REPEATED) -> list[Path]:
    """Runs that differ as a whole by these factors, and by 1 % within."""
    return [made.write(tmp_path / f"run-{number}", slower(factor, number)).path for number, factor in enumerate(factors)]


def test_a_merged_base_with_a_pass_twice_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    text = write_baseline(reduce(Made().write(tmp_path / "run", cyclic)))
    whole = json.loads(text)
    (tmp_path / "base.json").write_text(json.dumps(whole | {"cells": [*whole["cells"], whole["cells"][4]]}), encoding="utf-8")
    assert main(["compare", str(tmp_path / "base.json"), str(tmp_path / "run")]) == 2
    assert "has cpu, repeat twice, as after a merge" in capsys.readouterr().err


def test_a_base_of_several_runs_knows_how_much_whole_runs_differ(tmp_path: Path, capsys: Captured) -> None:
    paths, file = runs_of(tmp_path, [0.94, 1.0, 1.06, 0.97, 1.03]), tmp_path / "baseline.json"
    assert main(["baseline", *map(str, paths), "-o", str(file)]) == 0
    assert file.stat().st_size < 45_000
    base = read_side(file)
    assert base.runs == 5
    assert base == replace(reduce(*map(read_run, paths)), source=str(file), cells=base.cells)
    found = {}
    for name, factor in (("same", 1.12), ("slower", 1.6)):
        new = reduce(REPEATED.write(tmp_path / name, slower(factor, 9)))
        found[name] = [{item.metric.name for item in compare(one, new).regressions} for one in (base, reduce(read_run(paths[1])))]
    slow = {"ttft_p50", "ttft_mean", "e2el_p50", "output_throughput"}
    assert found == {"same": [set(), slow], "slower": [slow] * 2}
    assert main(["compare", str(file), str(tmp_path / "same")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "15 repeats in 5 runs" in text
    json_of = json.loads(to_json(compare(base, base)))
    assert (json_of["base"]["runs"], json_of["regressed"]) == (5, False)


def test_a_new_run_of_one_repeat_can_be_held_against_several_runs(tmp_path: Path) -> None:
    base = reduce(*map(read_run, runs_of(tmp_path, [0.99, 1.0, 1.01, 1.0, 0.99])))
    new = reduce(Made().write(tmp_path / "new", slower(1.4, 9)))
    found = compare(base, new)
    assert {item.verdict for item in found.lines if item.metric.name.startswith("ttft")} == {ChangeVerdict.WORSE}
    assert line(found, "cpu", "repeat", "ttft_p50").repeats == (15, 1)


def test_two_runs_do_not_tell_how_much_runs_differ(tmp_path: Path, capsys: Captured) -> None:
    paths, file = runs_of(tmp_path, [1.0, 1.01]), tmp_path / "baseline.json"
    assert main(["baseline", *map(str, paths), "-o", str(file)]) == 0
    assert "kvbench: warning: 2 runs do not tell how much runs differ" in capsys.readouterr().err
    assert main(["compare", str(file), str(paths[0])]) == 0
    assert "are inconclusive: too few samples (a base of more runs" in capsys.readouterr().err


def test_a_lost_hit_is_found_against_several_runs(tmp_path: Path) -> None:
    base = reduce(*map(read_run, runs_of(tmp_path, [1.0, 1.02, 0.98])))
    found = compare(base, reduce(REPEATED.write(tmp_path / "new", lost_hit)))
    assert line(found, "cpu", "repeat", "host").detail == "1 of 10 requests, first number 5 in the pass: 4,864 to 0"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"config": {"seed": 1}}, "are no runs of one setup (seed: 0 and 1)"),
        ({"device_tokens": 30000}, "are no runs of one setup (device_tokens: 21520 and 30000)"),
        ({"repeats": 2}, ""),
    ],
)
def test_a_base_is_made_of_equal_runs(tmp_path: Path, capsys: Captured, other: dict[str, Any], words: str) -> None:
    paths = [made.write(tmp_path / name, cyclic).path for name, made in (("one", REPEATED), ("two", replace(REPEATED, **other)))]
    assert main(["baseline", *map(str, paths)]) == (2 if words else 0)
    assert words in capsys.readouterr().err


def test_a_base_on_two_machines_is_refused_and_one_of_two_commits_is_not(tmp_path: Path) -> None:
    one, two = (read_run(path) for path in runs_of(tmp_path, [1.0, 1.0]))
    two.manifest["environment"]["commit"] = "abc"
    one.manifest["environment"]["commit"] = "def"
    assert reduce(one, two).runs == 2
    two.manifest["environment"]["cpu"] = "another"
    with pytest.raises(UsageError, match=r"are no runs of one setup \(cpu: made and another\)"):
        reduce(one, two)


def test_a_base_that_does_not_agree_with_itself_is_refused(tmp_path: Path, capsys: Captured) -> None:
    runs = [REPEATED.write(tmp_path / name, script) for name, script in (("one", slower(1.0)), ("two", lost_hit))]
    assert main(["baseline", *(str(run.path) for run in runs)]) == 2
    message = capsys.readouterr().err
    assert "differ in cpu, repeat, request 5: device + host + computed tokens 0 + 4,864 + 161, and 0 + 0 + 5,025" in message
    overlapping = replace(REPEATED, config={"concurrency": 4})
    runs = [overlapping.write(tmp_path / f"{name}-4", script) for name, script in (("one", slower(1.0)), ("two", lost_hit))]
    assert next(cell for cell in reduce(*runs).cells if (cell.arm, cell.pass_label) == ("cpu", "repeat")).requests is None


def test_a_run_is_named_once_and_is_to_be_trusted(tmp_path: Path, capsys: Captured) -> None:
    path = REPEATED.write(tmp_path / "one", cyclic).path
    assert main(["baseline", str(path), f"{path}/"]) == 2
    assert "the same run is named twice" in capsys.readouterr().err
    bad = REPEATED.write(tmp_path / "bad", cyclic, status="invalid", reasons=["not cold"]).path
    assert main(["baseline", str(path), str(bad)]) == 4
    assert f"{bad}: an invalid measurement" in capsys.readouterr().err


def test_the_first_format_of_a_base_is_still_read(tmp_path: Path) -> None:
    run = REPEATED.write(tmp_path / "one", slower(1.0))
    text = json.loads(write_baseline(reduce(run)))
    del text["runs"]
    for cell in text["cells"]:
        for repeat in cell["repeats"]:
            del repeat["run"]
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps(text | {"format": "kvbench.baseline/1"}), encoding="utf-8")
    new = reduce(REPEATED.write(tmp_path / "two", slower(1.02, 1)))
    assert compare(read_side(file), new).lines == compare(reduce(run), new).lines


@given(st.lists(st.lists(st.floats(-1, 1), min_size=2, max_size=4), min_size=3, max_size=6), st.floats(0.5, 5))
def test_what_a_whole_run_adds_is_between_runs_and_not_within(runs: list[list[float]], shift: float) -> None:
    new = [[0.0, 0.1]]
    before = own_noise(runs, new)
    even = [[value - float(np.mean(run)) for value in run] for run in runs]
    alike = own_noise(even, new)
    moved = own_noise([[value + shift * number for value in run] for number, run in enumerate(even)], new)
    assert before is not None
    assert alike is not None
    assert moved is not None
    assert before.within == pytest.approx(alike.within) == pytest.approx(moved.within)
    assert alike.between == pytest.approx(0, abs=1e-9)
    assert moved.between <= float(np.var([shift * number for number in range(len(runs))], ddof=1)) * (1 + 1e-9)
    assert moved.freedom == len(runs) - 1
    assert moved.of_mean(new) >= moved.between  # one run is as uncertain as runs differ, however many repeats it has


# Thresholds.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ttft_p5[cpu,repeat] > 1", "at character 1, before 'ttft_p5"),
        ("ttft_p50[cpu repeat] > 1", "at character 14, before 'repeat] > 1'"),
        ("ttft_p50[cpu,repeat] >> 1", "at character 23, before '> 1': a number is expected"),
        ("ttft_p50[cpu,repeat] > 10%", "at character 26, before '%': per cent of what?"),
        ("ttft_p50[cpu,repeat] > 10 ms", "at character 27, before 'ms'"),
        ("", "at character 1, before 'the end'"),
        ("host_hit_rate[cpu95,repeat] < 95", "at character 31, before '95': a share is from 0 to 1, or from 0% to 100%"),
        ("device_hit_rate[cpu,repeat] < -120%", "a share is from 0 to 1"),
    ],
)
def test_a_wrong_rule_is_named_by_its_place(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("rule", "fails"),
    [
        ("ttft_p50[cpu,repeat] > +10%", True), ("ttft_p50[cpu,repeat] > +30%", False), ("ttft_p50[cpu,*] <= −1%", False),
        ("speedup_p50[cpu,repeat] < 5", False), ("speedup_p50[cpu,repeat] < 50", True), ("host_hit_rate[cpu,repeat] < 97%", True),
        ("host_hit_rate[cpu,repeat] < 96%", False), ("computed[*,*] > +0", False), ("computed[cpu,repeat] >= 1610", True),
        ("failed[*,*] > 0", False), ("pass_s[none,sequential] > 1", True),
    ],
)  # fmt: skip
def test_rules(tmp_path: Path, rule: str, fails: bool) -> None:
    assert bool(compared(tmp_path, slower(1.0), slower(1.2, 1), fail_on=[rule]).failed_rules) == fails


@pytest.mark.parametrize(
    ("rule", "fails"), [("host[cpu,sequential] > +10%", (False, True)), ("host[cpu,sequential] < -10%", (False, False))]
)
def test_more_than_0_is_more_by_any_share(tmp_path: Path, rule: str, fails: tuple[bool, bool]) -> None:
    def warm(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return (
            replace(cyclic(arm, repeat, index, position, doc), host=256)
            if (arm, index) == ("cpu", 0)
            else cyclic(arm, repeat, index, position, doc)
        )

    for place, (new, failed) in enumerate(zip((cyclic, warm), fails, strict=True)):
        found = compared(tmp_path / str(place), cyclic, new, fail_on=[rule])
        assert [outcome.failed for outcome in found.outcomes] == [failed]
        assert json.loads(to_json(found))["thresholds"][0]["measured"] == (0.0 if new is cyclic else None)


def test_speedups_over_different_arms_are_not_compared(tmp_path: Path) -> None:
    made, other = (Made(arms=dict.fromkeys(arms, 51200), repeats=3) for arms in (("a", "b", "c"), ("b", "a", "c")))
    found = compared(tmp_path, slower(1.0), slower(1.0, 1), made, other, allow=("tier",), fail_on=["speedup_p50[c,repeat] > +1%"])
    assert not any(line.metric.name.startswith("speedup") for line in found.lines)
    assert "speedups are over a in the base and over b in the new run, so they are not compared" in found.notes
    assert [outcome.failed for outcome in found.outcomes] == [None]


def test_a_change_without_bounds_is_judged() -> None:
    assert judge(as_shares(Change(0.0, -50.0, 800.0)), 0.05, True) == ChangeVerdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("ttft_p99[cpu,repeat] > 800", "ttft_p99 needs 662 samples, and there are 30"),
        ("ttft_p99[cpu,*] > +10%", "ttft_p99 needs 662 samples, and there are 30"),
        ("ttft_p50[cpu,repeat] > 1", "ttft_p50 is unknown (n = 0)"),
    ],
)
def test_a_rule_that_cannot_be_computed_fails_and_says_why(tmp_path: Path, capsys: Captured, rule: str, why: str) -> None:
    REPEATED.write(tmp_path / "base", cyclic)
    replace(REPEATED, edit=untimed if "p50" in rule else lambda record: record).write(tmp_path / "new", cyclic)
    arguments = ["compare", str(tmp_path / "base"), str(tmp_path / "new"), "--fail-on", rule]
    assert main(arguments) == 3
    shown = capsys.readouterr()
    assert f"threshold cannot be computed: {rule} (cpu, " in " ".join(shown.out.split())
    assert f"{why})" in shown.err
    assert main([*arguments, "--format", "junit"]) == 3
    assert why in capsys.readouterr().out
    assert main([*arguments, "--format", "json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["regressed"], {one["unknown"] for one in document["thresholds"]}) == (True, {why})


def test_a_rule_on_no_pass_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"neither run has \[cpu,again\]; there are \[none,sequential\]"):
        compared(tmp_path / "b", cyclic, cyclic, fail_on=["ttft_p50[cpu,again] > 1"])


@pytest.mark.parametrize("rule", ["host_hit_rate[cpu,reverse] < 30%", "host_hit_rate[*,*] < 0%", "computed[cpu,*] > +0"])
def test_a_rule_on_a_pass_that_the_new_run_did_not_finish_fails(tmp_path: Path, capsys: Captured, rule: str) -> None:
    REPEATED.write(tmp_path / "base", slower(1.0))
    Made(stop_after=55).write(tmp_path / "new", slower(1.0, 1))
    arguments = ["compare", str(tmp_path / "base"), str(tmp_path / "new"), "--fail-on", rule]
    assert main(arguments) == 3
    assert f"hreshold cannot be computed: {rule} (cpu, reverse: the new run did not finish this pass)" in capsys.readouterr().err


def test_a_star_does_not_name_an_arm_that_the_new_run_was_not_to_measure(tmp_path: Path) -> None:
    alone, rules = replace(REPEATED, arms={"none": None}), ["computed[*,*] > +0"]
    found = compared(tmp_path, cyclic, cyclic, new_made=alone, allow=("tier", "host_tokens", "chunk_tokens"), fail_on=rules)
    assert {outcome.arm for outcome in found.outcomes} == {"none"}
    assert found.missing == ()


@pytest.mark.parametrize("figure", ["speedup_p50", "speedup_mean", "host", "host_hit_rate"])
def test_a_star_leaves_out_the_arm_that_cannot_have_the_figure(tmp_path: Path, figure: str) -> None:
    found = compared(tmp_path, slower(1.0), slower(1.0, 1), fail_on=[f"{figure}[*,repeat] < 0.5"])
    assert [(outcome.arm, outcome.failed) for outcome in found.outcomes] == [("cpu", False)]
    assert found.unsaid == ()
    with pytest.raises(UsageError, match="says nothing"):
        compared(tmp_path / "named", cyclic, cyclic, fail_on=[f"{figure}[none,repeat] < 0.5"])


@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    with suppress(UsageError):
        assert parse(text).text == text


# Intervals.


@given(
    st.lists(st.floats(1, 1e4), min_size=2, max_size=6), st.lists(st.floats(1, 1e4), min_size=2, max_size=6), st.integers(1, 100)
)  # fmt: skip
def test_an_interval_holds_its_change_and_widens_with_the_figures(base: list[float], new: list[float], figures: int) -> None:
    one, many = (interval(Sides("none", [base], [new]), own_noise([base], [new]), count) for count in (figures, figures + 1))
    assert one.low is not None
    assert one.high is not None
    assert one.change is not None
    assert one.low <= one.change <= one.high
    assert many.low is not None
    assert many.low <= one.low


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.06, 0.3, "worse"), (0.04, 0.3, "same"), (-0.3, -0.06, "better"), (-0.2, 0.2, "same"), (-0.5, 0.9, "inconclusive")],
)
def test_a_verdict_follows_from_the_interval(low: float, high: float, verdict: str) -> None:
    assert judge(Change(0.0, low, high), 0.05, more_is_worse=True) == verdict


# Formats.


def test_the_terminal_fits_80_columns_and_says_no_nan(tmp_path: Path) -> None:
    found = compared(tmp_path, slower(1.0), lost_hit, fail_on=["speedup_p50[cpu,*] < 50"])
    text = report.to_terminal(found).replace(str(tmp_path), "")
    assert max(map(len, text.splitlines())) <= 80
    assert "nan" not in text.lower().split()
    assert "hits lost" in text
    assert json.loads(to_json(found))["regressed"] is True


@pytest.mark.parametrize("failing", [False, True])
def test_the_summary_line_is_last_and_its_figures_can_be_counted(tmp_path: Path, failing: bool) -> None:
    def preempting(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        return replace(answer, error=RequestError("http", "500")) if failing and (arm, index, doc) == ("cpu", 1, 3) else answer

    found = compared(tmp_path, cyclic, preempting)
    counted = 0
    for heading, table in report.tables_of(found, MARKDOWN):
        rows = [[cell.strip() for cell in text.strip("| ").split("|")] for text in table.splitlines()]
        per_row = [1 if "change %" in rows[0] else sum(cell != "-" for cell in row[2:-2]) for row in rows[2:]]
        assert heading.endswith(f": {sum(per_row)} figures")
        assert ("preemptions" in rows[0]) == ("Prompt tokens" in heading)
        counted += sum(per_row)
    last = report.to_terminal(found).splitlines()[-1]
    assert f"({counted} figures: " in last
    assert counted == len(found.lines)
    assert sum(int(word.split()[0]) for word in last.partition(": ")[2].removesuffix(").").split(", ")) == counted
    assert report.to_markdown(found).splitlines()[-1] == last


def test_a_unit_stands_once(tmp_path: Path) -> None:
    found = compared(tmp_path, slower(1.0), slower(1.3, 1, "cpu"), fail_on=["host_hit_rate[cpu,repeat] < 99%", "ttft_p50[cpu,*] > 1"])
    for text in (junit.render(found), report.to_terminal(found), report.to_markdown(found), report.headline(found)):
        assert not re.search(r"x x|% share|% %|ms ms", text)
    assert re.search(r"ttft_p50 slower \([\d.]+ to [\d.]+ ms, \+", report.headline(found))
    assert re.search(r"speedup_p50 slower \([\d.]+x to [\d.]+x, −", report.headline(found))
    assert re.search(r"host_hit_rate\[cpu,repeat\] < 99% \(cpu, repeat: 96.8 % to 96.8 %\)", report.headline(found))


def test_verdicts_have_a_mark_and_in_a_terminal_a_colour(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compared(tmp_path, slower(1.0), by_pass({("cpu", 1): 1.6, ("cpu", 2): 0.5}, 1), fail_on=["ttft_max[none,*] > 1"])
    plain = report.to_terminal(found)
    coloured = colours.of_report(plain)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    for mark, words, colour in (("-", "slower", 31), ("+", "faster", 32), ("-", "breached", 31)):
        assert re.search(rf" {re.escape(mark)} +{words}$", plain, re.MULTILINE)
        assert re.search(rf"\x1b\[{colour}m{re.escape(mark)} +{words}\x1b\[0m$", coloured, re.MULTILINE)
    assert re.search(r" = +same$", plain, re.MULTILINE)
    arguments = ["compare", str(tmp_path / "base"), str(tmp_path / "new")]
    monkeypatch.setenv("TERM", "xterm")
    for terminal, no_colour, expected in ((False, "", False), (True, "", True), (True, "1", False)):
        monkeypatch.setenv("NO_COLOR", no_colour)
        with monkeypatch.context() as patched:
            patched.setattr(sys.stdout, "isatty", lambda shown=terminal: shown)
            assert main(arguments) == 3
        assert ("\x1b[" in capsys.readouterr().out) == expected


@pytest.mark.parametrize("seen", ["folders", "files", "files of an older kvbench"])
def test_the_page_shows_both_runs_side_by_side(tmp_path: Path, capsys: Captured, seen: str) -> None:
    places = []
    for name, script in (("base", slower(1.0)), ("<new>", slower(1.4, 1))):
        path = REPEATED.write(tmp_path / name, script).path
        if seen != "folders":
            text = write_baseline(reduce(read_run(path)))
            if "older" in seen:
                text = re.sub(r'"quantiles":\[[^]]*\]', '"quantiles":null', text)
            path = tmp_path / f"{name}.json"
            path.write_text(text, encoding="utf-8")
        places.append(str(path))
    assert main(["compare", *places, "--format", "html", "--fail-on", "ttft_p99[cpu,repeat] > 1"]) == 3
    page = capsys.readouterr().out
    reader = Reader(page)
    assert len(reader.tags("svg")) == 1
    assert reader.tags("script") == reader.tags("link") == []
    assert not any(str(attributes.get(name, "#")).startswith("http") for _, attributes in reader.seen for name in ("src", "href"))
    for words in ("<new>", "cannot be computed: ttft_p99[cpu,repeat] > 1", "needs 662 samples, and there are 30", "Regression ("):
        assert words in reader.text
    assert '<td class="worse">-</td><td class="worse">slower</td>' in page
    for words in ("none, sequential", "cpu, reverse", "base", "new"):
        assert f">{words}</text>" in page
    assert "cpu, repeat: 21.0 ms to 29." in page


def test_markdown_shows_rules_and_names_as_they_are(tmp_path: Path) -> None:
    made = replace(REPEATED, arms={"none": None, "c|p_u_*": 51200})
    rules = ["computed[*,*] > 1", "ttft_p50[c|p_u_*,*] > 1"]
    found = compared(tmp_path, slower(1.0), slower(1.0, 1), made, fail_on=rules)
    whole, short = (MarkdownIt("commonmark").enable("table").render(github.render(found, room)) for room in (github.LIMIT, 1500))
    for html in (whole, short):
        assert "<em>" not in html
        assert html.count("<strong>") == 1
        assert "hreshold breached: computed[*,*] &gt; 1 (c|p_u_*, repeat: " in html
    assert "<table>" not in short
    assert whole.count("<td>c|p_u_*</td>") == 6 + 6 + 3 * 3 + 3 + 6  # TTFT, speedups, other latencies and throughput, tokens, thresholds


def markdown_rows(text: str) -> set[tuple[str, ...]]:
    """Cells of each row, without the rule under the heading, which is as wide as the table."""
    rows = (tuple(cell.strip() for cell in line.split("|")) for line in text.splitlines() if line.startswith("|"))
    return {row for row in rows if "---" not in row[1]}


def test_github_appends_to_the_summary_and_stays_below_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    REPEATED.write(tmp_path / "base", slower(1.0))
    REPEATED.write(tmp_path / "new", lost_hit)
    arguments = ["compare", str(tmp_path / "base"), str(tmp_path / "new"), "--format", "github"]
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert main(arguments) == 3
    assert capsys.readouterr().out.startswith("### kvbench compare\n\n**Regression: cpu, repeat: host hits lost")
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert main(arguments) == 3
    assert capsys.readouterr().out == ""
    assert summary.read_text(encoding="utf-8").startswith("before\n### kvbench compare")
    found = compare(read_side(tmp_path / "base"), read_side(tmp_path / "new"))
    whole = github.render(found)
    for room in (len(whole.encode()) - 1, 900, 300, 10, 0):
        assert len(github.render(found, room).encode()) <= room
    short = github.render(found, len(whole.encode()) - 1)
    assert "stayed the same are left out" in short
    assert markdown_rows(short) < markdown_rows(whole)  # what is shown is shown whole


def test_junit_has_a_case_for_each_figure_and_threshold(tmp_path: Path) -> None:
    found = compared(tmp_path, slower(1.0), lost_hit, Made(), fail_on=["computed[cpu,*] > +0"])
    suite = ElementTree.fromstring(junit.render(found)).find("testsuite")
    assert suite is not None
    cases = {(case.get("classname"), case.get("name")): case for case in suite}
    assert len(cases) == len(found.lines) + 3 == int(suite.get("tests", ""))
    assert cases["kvbench.cpu.repeat", "host"].find("failure") is not None
    assert cases["kvbench.cpu.repeat", "ttft_p50"].find("skipped") is not None
    assert cases["kvbench.cpu.repeat", "--fail-on computed[cpu,*] > +0"].find("failure") is not None
    assert cases["kvbench.cpu.reverse", "host"].find("failure") is None
    assert int(suite.get("failures", "")) == sum(case.find("failure") is not None for case in suite) == 3


def test_junit_holds_no_character_that_xml_cannot(tmp_path: Path) -> None:
    run = REPEATED.write(tmp_path / "bad", cyclic, status="invalid", reasons=["broken \x00 \x1b[31m <&>"])
    text = junit.render(compare(reduce(run), reduce(run)))
    suite = ElementTree.fromstring(text).find("testsuite")
    assert suite is not None
    assert suite.get("errors") == "2"
