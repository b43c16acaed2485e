"""Controls: how they are set up, what they measure on the engine and on servers, and when a gain in them is the measurement's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cli import progress
from kvbench.cli.main import main
from kvbench.comparison.baseline import reduce
from kvbench.comparison.compare import compare
from kvbench.errors import Interrupted, RunFailed, UsageError
from kvbench.experiments.cyclic.controls import control_configs
from kvbench.experiments.readings import ExperimentView
from kvbench.reports.formats import markdown, terminal
from kvbench.reports.formats.json import to_json
from kvbench.runs.records import RequestRecord
from kvbench.runs.run_folder import CONTROLS, LEAST_CONTROL_REPEATS, Run, control_folder, read_run
from kvbench.session import session
from kvbench.session.watcher import Watcher
from kvbench.summary import controls
from kvbench.summary.controls import Verdict, judge, read_controls
from kvbench.summary.summary import summarise
from kvbench.testing.fake_script import Script as ServerScript
from kvbench.testing.fake_server import serving
from tests.configs import loaded
from tests.made import Answer, Made, Script

SIZES = {"docs": 4, "doc_tokens": 100, "kv_tokens": 320, "block_size": 4, "chunk_tokens": 16, "controls": True}
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def only_tokens_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gain is large enough: requests of a millisecond on cores that tests share may differ by any factor."""
    monkeypatch.setattr(controls, "LEAST_GAIN", 1e9)


# The verdict.


def logs(*gains: float, base: float = 5.0) -> npt.NDArray[np.float64]:
    """Repeats with these gains; the arm itself is as steady as can be."""
    return np.array([[base, base - np.log1p(gain)] for gain in gains])


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((0.3, 0.28, 0.32), Verdict.GAIN),
        ((0.3, 0.28, 0.08), Verdict.NOISE),
        ((0.0, 0.02, -0.01), Verdict.NO_GAIN),
        ((-0.3, -0.2, -0.4), Verdict.NO_GAIN),
        ((0.3, 0.3), Verdict.TOO_FEW),
        ((), Verdict.TOO_FEW),
        ((0.3, 0.3, 0.3, 0.3, -0.1), Verdict.GAIN),
        ((0.3, 0.3, 0.3, -0.1), Verdict.NOISE),
        ((0.0, 1.5, -0.4), Verdict.TOO_NOISY),
    ],
)
def test_a_gain_is_one_that_nearly_every_repeat_has(gains: tuple[float, ...], verdict: Verdict) -> None:
    assert judge(logs(*gains).reshape(-1, 2)) == verdict


def test_a_gain_within_the_arms_own_noise_is_none() -> None:
    drifting = logs(0.2, 0.2, 0.2) + np.array([[0.0], [1.0], [-1.0]])  # both arms together, by a factor of e
    assert judge(drifting) == Verdict.TOO_NOISY
    assert judge(logs(0.2, 0.2, 0.2)) == Verdict.GAIN


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=3, max_size=8), st.floats(-5, 5), st.randoms())
def test_neither_the_unit_nor_the_order_of_repeats_matters(rows: list[tuple[float, float]], shift: float, random: Any) -> None:
    medians, shuffled = np.array(rows), random.sample(rows, len(rows))
    if judge(medians) == Verdict.GAIN:
        assert (medians[:, 0] - medians[:, 1] > np.log1p(controls.LEAST_GAIN)).mean() >= controls.AGREEING
    swapped = judge(medians[:, ::-1])
    assert {judge(medians), swapped} != {Verdict.GAIN}
    assert judge(np.array(shuffled)) == judge(medians) or np.isclose(*_margins(medians)).any()
    assert judge(medians + shift) == judge(medians) or np.isclose(*_margins(medians)).any()


def _margins(medians: npt.NDArray[np.float64]) -> tuple[Any, Any]:
    """What is compared with what: a rounding may decide where they are equal."""
    gains = medians[:, 0] - medians[:, 1]
    noise = 2 * np.sqrt(medians.var(axis=0, ddof=1).sum() / len(medians))
    least = np.log1p(controls.LEAST_GAIN)
    return np.array([*gains, gains.mean(), gains.mean(), noise]), np.array([*([least] * len(gains)), least, noise, np.log1p(0.3)])


def test_equal_arms_seldom_alarm_and_a_gain_of_30_per_cent_is_found() -> None:
    rng, alarms, found, trials = np.random.default_rng(0), 0, 0, 500
    for _ in range(trials):  # noise as seen here, the two controls of a run
        both = [0.045 * rng.standard_normal((3, 2)) + 0.02 * rng.exponential(1, (3, 2)) for _ in CONTROLS]
        alarms += any(judge(medians) == Verdict.GAIN for medians in both)
        found += any(judge(medians + np.array([np.log(1.3), 0])) == Verdict.GAIN for medians in both)
    assert alarms <= 0.03 * trials
    assert found >= 0.9 * trials


# Made controls: what is read from their folders.


def steady(factor: float = 1.0, host: int = 0) -> Script:
    """Every request takes as long; the cpu arm is faster by the factor, and is given ``host`` tokens when it reads again."""
    rng = np.random.default_rng(0)

    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        own = factor if arm == "cpu" else 1.0
        return Answer(100.0 / own * (1 + 0.01 * rng.standard_normal()), host=host if arm == "cpu" and index else 0)

    return script


MAIN = Made(config={"controls": True, "reuse": 0.5})
CONTROL = Made(passes=("sequential", "repeat"), docs=4, repeats=3, config={"reuse": 0.0})


def made(tmp_path: Path, scripts: dict[str, Script], control: Made = CONTROL, main: Made = MAIN, **options: Any) -> Run:
    run = main.write(tmp_path / "run", steady())
    for name, script in scripts.items():
        control.write(control_folder(run.path, name), script, **options)
    return read_run(run.path)


def test_no_gain_is_a_table_and_no_reason(tmp_path: Path) -> None:
    summary = summarise(made(tmp_path, {name: steady() for name in CONTROLS}))
    assert [(row.control, row.arm, row.n, row.verdict, row.host) for row in summary.controls.rows] == [
        (name, "cpu", 12, Verdict.NO_GAIN, 0) for name in CONTROLS
    ]
    assert summary.controls.reasons == summary.controls.notes == ()
    text = terminal.render(summary)
    assert max(map(len, text.splitlines())) <= 80 or str(tmp_path) in text
    assert "Controls, where no tier can help (TTFT of the second pass)\ncontrol   arm   n  none p50" in text
    assert "| no-reuse | cpu " in markdown.render(summary)
    assert [row["verdict"] for row in json.loads(to_json(summary))["controls"]["rows"]] == ["no gain", "no gain"]


def test_a_gain_where_no_tier_can_help_is_a_reason(tmp_path: Path) -> None:
    found = read_controls(ExperimentView(made(tmp_path, {"no-reuse": steady(1.3), "fits": steady(1.02)})))
    assert [row.verdict for row in found.rows] == [Verdict.GAIN, Verdict.NO_GAIN]
    assert found.rows[0].gain == pytest.approx(0.3, abs=0.02)
    assert found.rows[0].gain == pytest.approx((found.rows[0].baseline_ms or 0) / (found.rows[0].p50_ms or 1) - 1)
    assert [reason[:25] for reason in found.reasons] == ["control no-reuse: cpu is "]
    assert found.reasons[0].endswith("where nothing is read again: the measurement, not the tier, is at work")


def test_tokens_from_the_tier_are_a_reason_whatever_the_clock_says(tmp_path: Path) -> None:
    found = read_controls(ExperimentView(made(tmp_path, {name: steady(host=256) for name in CONTROLS})))
    assert list(found.reasons) == [
        f"control {name}: the cpu tier gave 1,024 tokens where {where}, so it cannot have: the counts are wrong"
        for name, where in (("no-reuse", "nothing is read again"), ("fits", "everything fits the pool"))
    ]
    overlapping = replace(CONTROL, config={"reuse": 0.0, "concurrency": 4})
    found = read_controls(ExperimentView(made(tmp_path / "b", {name: steady(host=256) for name in CONTROLS}, overlapping)))
    assert [reason.partition(":")[0] for reason in found.reasons] == ["control no-reuse"]


def test_what_speaks_against_a_control_speaks_against_the_run(tmp_path: Path) -> None:
    def warm(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(100.0, device=16)

    reasons = summarise(made(tmp_path, {"no-reuse": warm, "fits": steady()})).reasons
    assert [reason[:60] for reason in reasons] == [
        f"control no-reuse: the first pass of arm {arm} was not cold: 12"[:60] for arm in ("none", "cpu")
    ]


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"control": replace(CONTROL, repeats=2)}, "the control fits says nothing of cpu: it needs 3 repeats, and 2 were finished"),
        ({"control": replace(CONTROL, stop_after=40), "status": "interrupted"}, "the control fits was not finished"),
    ],
)
def test_too_little_data_is_said_and_no_reason(tmp_path: Path, options: dict[str, Any], note: str) -> None:
    found = read_controls(ExperimentView(made(tmp_path, {"fits": steady(1.5)}, **options)))
    assert found.reasons == ()
    assert [row.verdict for row in found.rows] == [Verdict.TOO_FEW]
    assert found.notes[:2] == ("the control no-reuse was not measured", note)


def test_a_control_too_noisy_to_show_anything_says_so(tmp_path: Path) -> None:
    def noisy(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(100.0 * (1 + repeat))

    found = read_controls(ExperimentView(made(tmp_path, dict.fromkeys(CONTROLS, noisy))))
    assert {row.verdict for row in found.rows} == {Verdict.TOO_NOISY}
    assert "the control fits says nothing of cpu: the noise is " in found.notes[1]


def test_a_run_without_controls_has_none(tmp_path: Path) -> None:
    run = Made().write(tmp_path / "run", steady())
    assert read_controls(ExperimentView(run)) == controls.Controls()
    assert "Controls" not in terminal.render(summarise(run))


def test_a_run_with_controls_compares_with_one_without(tmp_path: Path) -> None:
    run = made(tmp_path, {})
    assert (
        compare(reduce(run), reduce(Made(config={"reuse": 0.5, "controls": False}).write(tmp_path / "other", steady()))).regressions == ()
    )


# How they are set up.


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        ({"runner": "simulator"}, "a prediction has no noise"),
        ({"documents": "texts"}, "files of --documents may begin alike"),
        ({"tier": "cpu"}, "there is one arm"),
        ({"passes": "sequential"}, "there is no later pass"),
        ({"experiment": "trace", "trace": "t.jsonl"}, "the experiment is trace"),
    ],
)
def test_where_there_is_nothing_to_control_it_is_wrong_use(given_: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=f"--controls does not apply: {why}"):
        loaded(None, {"controls": True, **given_})


@pytest.mark.parametrize(("pool", "block", "doc", "held"), [(21520, 16, 5011, 4), (21504, 32, 5003, 4), (320, 4, 100, 2), (116, 4, 100, 1)])
def test_controls_read_what_the_pool_holds_and_are_else_the_run(pool: int, block: int, doc: int, held: int) -> None:
    config = loaded(None, {"controls": True, "doc_tokens": doc, "overlap": 0.5, "host_gib": 1, "question": "vary", "repeats": 5})
    manifest = {
        "capacity": {"device_tokens": pool, "block_size": block, "host_tokens": {"none": None, "cpu": 4096}},
        "workload": {"documents": 10},
    }
    made = control_configs(config, manifest)
    assert [(name, control.reuse, control.docs) for name, control in made.items()] == [("no-reuse", 0.0, held), ("fits", 1.0, held)]
    for control in made.values():
        kept, changed = config.resolved(), control.resolved()
        differing = {name for name in kept.keys() | changed.keys() if kept.get(name) != changed.get(name)}
        assert differing == {"controls", "docs", "passes", "overlap", "host_gib", "host_tokens"} | (
            {"reuse"} if control.reuse == 0 else set()
        )
        assert (control.controls, control.overlap, control.host_tokens, control.repeats) == (False, 0.0, 4096, 5)
        assert loaded(None, control.resolved()).resolved() == control.resolved()
    few = {**manifest, "workload": {"documents": 1}}
    assert [control.docs for control in control_configs(config, few).values()] == [1, 1]
    assert control_configs(loaded(None, {"controls": True}), manifest)["fits"].repeats == LEAST_CONTROL_REPEATS


# Whole runs.


def arguments(model: Path, out: Path, *more: str, **given_: Any) -> list[str]:
    values = {"model": model, "out": out, **SIZES, **given_}
    words = [word for name, value in values.items() if value is not True for word in (f"--{name.replace('_', '-')}", str(value))]
    return ["run", *words, "--controls", "--quiet", *more]


@pytest.mark.usefixtures("only_tokens_count")
@pytest.mark.parametrize("more", [(), ("--question", "vary", "--overlap", "0.5", "--concurrency", "3")], ids=len)
def test_on_the_engine_nothing_comes_from_the_tier(small_model: Path, tmp_path: Path, capsys: Captured, more: tuple[str, ...]) -> None:
    assert main(arguments(small_model, tmp_path / "run", *more)) == 0
    run = read_run(tmp_path / "run")
    assert (run.manifest["status"], run.manifest["config"]["controls"], len(run.requests)) == ("complete", True, 24)
    fresh, fits = (read_run(control_folder(run.path, name)) for name in CONTROLS)
    for control in (fresh, fits):
        assert (control.manifest["status"], control.manifest["config"]["controls"]) == ("complete", False)
        assert control.manifest["capacity"] == run.manifest["capacity"]
        assert len(control.requests) == 2 * 3 * 2 * 2  # documents, repeats, arms, passes
        assert {line["cached_tokens_host"] for line in control.requests} == {0}
        assert all(line["prediction"]["host"] == 0 for line in control.passes)
    assert {line["cached_tokens_device"] for line in fresh.requests} == {0}
    assert all(line["cached_tokens_device"] >= 96 for line in fits.requests if line["pass"] == "repeat")
    assert len({(line["doc_id"], line["pass"]) for line in fresh.requests}) == len({line["doc_id"] for line in fresh.requests}) == 4
    assert [row.control for row in summarise(run).controls.rows] == list(CONTROLS)
    assert "Controls, where no tier can help" in capsys.readouterr().out
    assert loaded(run.path / "manifest.json", {}).controls  # the same command again


@pytest.mark.usefixtures("only_tokens_count")
def test_a_control_can_be_run_again_by_itself(small_model: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(arguments(small_model, tmp_path / "run")) == 0
    manifest = control_folder(tmp_path / "run", "fits") / "manifest.json"
    assert main(["run", "--config", str(manifest), "--out", str(tmp_path / "again"), "--quiet"]) == 0
    assert not control_folder(tmp_path / "again", "fits").exists()
    assert main(["report", str(manifest.parent)]) == 0
    assert "fits: the working set (200) fits the pool (320)" in " ".join(capsys.readouterr().out.split())


class Stops(Watcher):
    """Raises an error after so many requests."""

    def __init__(self, after: int, error: BaseException) -> None:
        self.left, self.error = after, error

    def request_ended(self, record: RequestRecord) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (RunFailed("the server died"), 1, "the server died"),
    ],
    ids=repr,
)
def test_a_run_whose_controls_stop_is_whole(
    small_model: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    monkeypatch.setattr(progress, "watcher", lambda quiet: Stops(24 + 5, error))
    assert main(arguments(small_model, tmp_path / "run")) == code
    message = capsys.readouterr().err
    assert message.startswith(f"kvbench: error: the controls were not finished: {said}; ")
    assert f"the run itself was, in {tmp_path / 'run'} (kvbench report {tmp_path / 'run'})" in message
    run = read_run(tmp_path / "run")
    assert (len(run.requests), len(run.passes), run.manifest["status"]) == (24, 6, "interrupted")
    assert run.manifest["reasons"][0].startswith(f"its controls were not finished: {said}")
    assert read_run(control_folder(run.path, "no-reuse")).manifest["status"] == "interrupted"
    assert main(["report", str(run.path)]) == 0
    report = " ".join(capsys.readouterr().out.split())
    assert "note: interrupted after 24 of 24 requests: its controls were not finished" in report
    assert "note: the control no-reuse was not finished" in report
    assert "note: the control fits was not measured" in report


def test_an_error_nobody_expected_in_a_control_keeps_the_run(small_model: Path, tmp_path: Path) -> None:
    config = loaded(None, {"model": str(small_model), **SIZES})
    with pytest.raises(ZeroDivisionError):
        session.run(config, tmp_path / "run", Stops(30, ZeroDivisionError()), [])
    assert read_run(tmp_path / "run").manifest["status"] == "interrupted"
    with pytest.raises(Interrupted, match="what was measured is in"):
        session.run(config, tmp_path / "early", Stops(3, KeyboardInterrupt()), [])
    assert not control_folder(tmp_path / "early", "no-reuse").exists()


POOL = ServerScript(pool_tokens=1600, block_size=16)
TIER = replace(POOL, host_tokens=4096)


@pytest.fixture
def attach(tmp_path: Path) -> Callable[..., int]:
    """The exit code of a run with controls on two servers."""

    def run(none: ServerScript, cpu: ServerScript) -> int:
        with ExitStack() as stack:
            urls = [f"--url={arm}={stack.enter_context(serving(script)).url}" for arm, script in (("none", none), ("cpu", cpu))]
            words = ["run", "--runner", "vllm", "--tier", "none,cpu", *urls, "--docs", "4", "--doc-tokens", "600", "--vocab", "1000"]
            return main([*words, "--output-tokens", "4", "--quiet", "--controls", "--out", str(tmp_path / "run")])

    return run


def test_a_server_that_is_slow_for_no_reason_ends_with_four(attach: Callable[..., int], tmp_path: Path, capsys: Captured) -> None:
    assert attach(replace(POOL, first_token_s=0.06), replace(TIER, first_token_s=0.02)) == 4
    captured = capsys.readouterr()
    run = read_run(tmp_path / "run")
    assert run.manifest["status"] == "invalid"
    for name, where in (("no-reuse", "nothing is read again"), ("fits", "everything fits the pool")):
        reason = next(reason for reason in run.manifest["reasons"] if reason.startswith(f"control {name}: cpu is "))
        assert reason.endswith(f"where {where}: the measurement, not the tier, is at work")
        assert reason in captured.err
        assert reason in " ".join(captured.out.split())
    assert main(["baseline", str(tmp_path / "run")]) == 4


@pytest.mark.usefixtures("only_tokens_count")
def test_each_control_is_new_to_servers_that_were_there_before(attach: Callable[..., int], tmp_path: Path, capsys: Captured) -> None:
    assert attach(POOL, TIER) == 0
    runs = [read_run(path) for path in (tmp_path / "run", *(control_folder(tmp_path / "run", name) for name in CONTROLS))]
    assert len({run.manifest["nonce"] for run in runs}) == 3
    fresh, fits = runs[1:]
    assert {line["cached_tokens_device"] + line["cached_tokens_host"] for line in fresh.requests} == {0}
    assert {line["cached_tokens_device"] for line in fits.requests if line["pass"] == "repeat"} == {608}
    assert {line["cached_tokens_host"] for line in fits.requests} == {0}
    assert all("requests done" in line for line in capsys.readouterr().err.splitlines())
