"""``examples/``: a file for each experiment and runner; all load, and those that need no server of the user's are run."""

from __future__ import annotations

import re
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvbench.cli.main import main
from kvbench.config.settings import load, read_file
from kvbench.experiments.composed import load_config
from kvbench.experiments.registry import experiments
from kvbench.planning.config import PlanConfig
from kvbench.runs.run_folder import read_run
from kvbench.testing.fake_script import Script
from kvbench.testing.fake_server import serving

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
FILES = sorted(FOLDER.glob("*.toml"))
RUNS = [file for file in FILES if file.stem != "plan"]
SMALL = [file for file in RUNS if file.stem.endswith(("-engine", "-simulator"))]


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says: from the root of a checkout."""
    monkeypatch.chdir(ROOT)


def test_there_is_one_for_each_experiment_and_runner() -> None:
    loaded = [load_config(file, {}) for file in RUNS]
    assert {(config.experiment, config.runner) for config in loaded} == {
        (name, runner) for name, item in experiments().items() for runner in item.runners
    }


@pytest.mark.parametrize("file", RUNS, ids=lambda file: file.stem)
def test_it_is_named_by_what_it_sets_and_spells_options_as_the_command_line(file: Path) -> None:
    config, keys = load_config(file, {}), tomllib.loads(file.read_text(encoding="utf-8"))
    assert list(keys)[:2] == ["experiment", "runner"]
    assert not [key for key in keys if "_" in key]
    setup, _, runner = file.stem.partition("-")
    assert setup == config.experiment or (setup, config.experiment) == ("crossover", "pressure")
    assert runner == config.runner or (runner, config.runner) == ("attached", "vllm")


def test_the_page_names_every_file_and_no_other() -> None:
    rows = PAGE.split("| file | what it asks | needs |")[1]
    assert sorted(re.findall(r"`([\w-]+\.toml)`", rows)) == [file.name for file in FILES]
    assert (FOLDER / "requests.jsonl").is_file()


@pytest.mark.parametrize("file", SMALL, ids=lambda file: file.stem)
def test_it_runs(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--config", str(file), "--quiet", "--out", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    run = read_run(tmp_path / "run")
    assert run.manifest["status"] == "complete"
    assert run.requests
    if "tier" in run.manifest["config"]:  # each shows a tier that gave something
        assert sum(line["cached_tokens_host"] for line in run.requests if line["arm"] == "cpu") > 0
    if file.stem == "pressure-engine":
        assert {line["arm"] for line in run.requests if line["preemptions"]} >= {"recompute", "swap"}


def test_the_one_for_servers_that_run_already_takes_their_addresses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scripts = {"none": Script(pool_tokens=1600, block_size=16), "cpu": Script(pool_tokens=1600, block_size=16, host_tokens=4096)}
    (line,) = re.findall(r"^kvbench (run .*attached.*)$", PAGE, re.MULTILINE)
    with ExitStack() as stack:
        addresses = {arm: stack.enter_context(serving(script)).url for arm, script in scripts.items()}
        words = [re.sub(r"(\w+)=http.*", lambda found: f"{found[1]}={addresses[found[1]]}", word) for word in line.split()]
        assert main([*words, "--quiet", "--out", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    assert sum(line["cached_tokens_host"] for line in read_run(tmp_path / "run").requests if line["arm"] == "cpu") > 0


def test_the_plan_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    file = FOLDER / "plan.toml"
    assert load(PlanConfig, "kvbench plan", file, read_file(file), {}).docs == 10
    assert main(["plan", "--config", str(FOLDER / "plan.toml")]) == 0
    assert "Sizes" in capsys.readouterr().out
