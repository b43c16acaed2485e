"""``action.yml``: its steps are run here, on folders and files that are there already and on runs that take no time."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvbench.cli.main import main
from tests.install.action import ACTION, ROOT, SHELL, run_action

DATA = ROOT / "tests" / "data"
STEADY = str(DATA / "baselines" / "steady.json")
SIMULATED = "--runner simulator --docs 4 --doc-tokens 512 --kv-tokens 1024"


def test_it_is_a_composite_action_whose_every_input_is_described_and_used() -> None:
    assert ACTION["runs"]["using"] == "composite"
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert [name for name, item in ACTION["inputs"].items() if not item["description"] or f"inputs.{name}" not in text] == []
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    assert all(step["shell"] == "bash" for step in ACTION["runs"]["steps"])


def test_no_expression_stands_in_a_script() -> None:
    """An input there would be run as a part of it; in a variable it is only read."""
    assert [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step["run"]] == []


@pytest.mark.parametrize(
    ("given", "verdict", "code"),
    [
        ({"out": STEADY}, "passed", 0),
        ({"out": str(DATA / "baselines" / "slower.json")}, "regression", 3),
        ({"out": str(DATA / "baselines" / "hits-lost.json")}, "regression", 3),
        ({"out": STEADY, "fail-on": "speedup_p50[cpu,repeat] < 1000"}, "regression", 3),
        ({"out": STEADY, "fail-on": "speedup_p50[cpu,repeat] < 0.1\nhost_hit_rate[cpu,repeat] < 1%\n"}, "passed", 0),
        ({"out": str(DATA / "folders" / "edited-invalid"), "baseline": str(DATA / "folders" / "cyclic")}, "untrusted", 4),
        ({"out": str(DATA / "folders" / "pressure")}, "error", 2),
        ({"out": "runs/none"}, "error", 2),
    ],
)
def test_the_verdict_is_that_of_the_comparison(given: dict[str, str], verdict: str, code: int, tmp_path: Path) -> None:
    ran = run_action(tmp_path, {"baseline": STEADY, **given})
    assert ran.outputs == {"verdict": verdict, "exit-code": str(code)}, ran.errors
    assert ran.codes == {"Compare": code}
    if code != 2:
        assert ran.summary.startswith("### kvbench compare")
        assert ElementTree.parse(tmp_path / "kvbench.xml").getroot().tag == "testsuites"


def test_options_of_the_comparison_reach_it(tmp_path: Path) -> None:
    one_repeat = str(DATA / "baselines" / "one-repeat.json")
    unsaid = {"baseline": one_repeat, "out": str(DATA / "folders" / "cyclic"), "junit": ""}
    assert run_action(tmp_path, unsaid).outputs["verdict"] == "passed"
    assert run_action(tmp_path, unsaid | {"strict": "true"}).outputs["verdict"] == "regression"
    assert not (tmp_path / "kvbench.xml").exists()
    slower = {"baseline": STEADY, "out": str(DATA / "baselines" / "slower.json")}
    assert run_action(tmp_path, slower | {"min-effect": "90%"}).outputs["verdict"] == "passed"


def test_it_measures_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *SIMULATED.split(), "--quiet", "--out", str(tmp_path / "base")]) == 0
    assert main(["baseline", str(tmp_path / "base"), "-o", str(tmp_path / "baseline.json")]) == 0
    ran = run_action(tmp_path, {"arguments": f"'cyclic' {SIMULATED} --host-tokens=4096"})
    assert ran.codes == {"Measure": 0, "Compare": 2}  # another size of the tier is another capacity
    ran = run_action(tmp_path, {"arguments": SIMULATED, "out": "runs/same"})
    assert (ran.codes, ran.outputs["verdict"]) == ({"Measure": 0, "Compare": 0}, "passed"), ran.errors
    assert (tmp_path / "runs" / "same" / "manifest.json").exists()


def test_a_run_without_a_base_is_reported(tmp_path: Path) -> None:
    ran = run_action(tmp_path, {"arguments": SIMULATED, "baseline": ""})
    assert (ran.codes, ran.outputs["verdict"]) == ({"Measure": 0, "Compare": 0}, "passed"), ran.errors
    assert ran.summary.startswith("**cyclic")


def test_a_run_that_fails_is_an_error_and_compares_nothing(tmp_path: Path) -> None:
    ran = run_action(tmp_path, {"arguments": "--docs many"})
    assert (ran.codes, ran.outputs) == ({"Measure": 2, "Compare": 2}, {"verdict": "error", "exit-code": "2"})
    assert "--docs: Input should be a valid integer" in ran.errors
    assert ran.summary == ""


def test_words_are_words_and_no_commands(tmp_path: Path) -> None:
    (tmp_path / "own docs").mkdir()
    ran = run_action(tmp_path, {"arguments": "--documents 'own docs' --model $(touch hit)`touch hit`;touch hit"})
    assert ran.outputs["verdict"] == "error"
    assert not (tmp_path / "hit").exists()


@pytest.mark.parametrize("index", ["", "https://example.org/cpu"])
def test_it_installs_this_checkout_with_its_constraints(index: str, tmp_path: Path) -> None:
    (tmp_path / "pip").write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    (tmp_path / "pip").chmod(0o755)
    (step,) = [step for step in ACTION["runs"]["steps"] if step["name"] == "Install"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_ACTION_PATH": str(ROOT), "EXTRA_INDEX_URL": index}
    done = subprocess.run([*SHELL, step["run"]], env=environment, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    assert words == [
        "install",
        *(["--extra-index-url", index] if index else []),
        "-c",
        f"{ROOT}/requirements/constraints.txt",
        f"{ROOT}[engine]",
    ]
    assert Path(words[-2]).is_file()


def test_an_untrusted_run_of_its_own_fails_even_without_a_base(tmp_path: Path) -> None:
    """The run is one that ends with 4: the program that measures is replaced, as it cannot be made to on purpose in no time."""
    kvbench = tmp_path / "bin" / "kvbench"
    kvbench.parent.mkdir()
    kvbench.write_text('#!/bin/sh\n[ "$1" = run ] && exit 4\necho report\n')
    kvbench.chmod(0o755)
    (measure, compare) = ACTION["runs"]["steps"][1:]
    environment = {"PATH": f"{kvbench.parent}:/usr/bin:/bin", "GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "summary"}
    names = {name: "" for step in (measure, compare) for name in step["env"]}
    done = subprocess.run([*SHELL, measure["run"]], cwd=tmp_path, env=environment | names, check=False)
    assert (done.returncode, (tmp_path / "output").read_text()) == (0, "exit-code=4\n")
    done = subprocess.run([*SHELL, compare["run"]], cwd=tmp_path, env=environment | names | {"MEASURED": "4"}, check=False)
    assert done.returncode == 4
    assert (tmp_path / "output").read_text().endswith("verdict=untrusted\nexit-code=4\n")
    assert json.dumps((tmp_path / "summary").read_text()) == '"report\\n"'
