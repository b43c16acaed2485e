"""The base and the workflow of docs/ci.md are run: the steps of the action it uses, in order, in an empty repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from kvbench.comparison.compare import compare
from tests.install.action import ACTION, run_action
from tests.made import Made, cyclic

TEXT = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """The code block behind a mark of the page."""
    match = re.search(rf"<!-- test: {name} -->\n```\w+\n(.*?)```", TEXT, re.DOTALL)
    assert match is not None
    return match[1]


def steps() -> list[dict[str, Any]]:
    """The steps of the workflow's one job."""
    (job,) = yaml.safe_load(block("workflow"))["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


def test_the_page_lists_the_inputs_of_the_action_with_their_defaults() -> None:
    rows = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \| .* \| (.+) \|$", TEXT.split("| input |")[1].split("\n\n")[0], re.MULTILINE)
    said = {name: default for names, default in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert set(said) == set(ACTION["inputs"])
    for name, item in ACTION["inputs"].items():
        assert f"`{item['default']}`" in said[name] or said[name] == ("empty" if not item["default"] else "PyTorch's own index"), name
    assert set(ACTION["outputs"]) == {"verdict", "exit-code"}


def test_every_rule_of_the_page_can_fire_on_the_pages_own_run(tmp_path: Path) -> None:
    """The run of the page has 4 documents and 3 repeats, so 12 requests of an arm and pass."""
    run = Made(docs=4, repeats=3).write(tmp_path / "run", cyclic).path
    table = TEXT.partition("<!-- test: rules -->")[2].partition("\n\n")[0]
    rules = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(rules) == 5
    for outcome in compare(run, run, fail_on=rules).outcomes:
        assert outcome.failed is not None, outcome.unknown
    fired = [re.sub(r"[<>] .*", lambda limit: f"{limit[0][0]} {'0' if limit[0][0] == '>' else '100%'}", rule) for rule in rules[3:]]
    assert all(outcome.failed for outcome in compare(run, run, fail_on=fired).outcomes)


@pytest.mark.filterwarnings("default::ResourceWarning")
def test_the_workflow_runs(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    for command in block("base").splitlines():
        subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, env=environment, check=True, timeout=300)
    (given,) = [step["with"] for step in steps() if step["uses"] == "./"]
    ran = run_action(tmp_path, given)
    # Tokens and thresholds must hold; on cores that the tests share, a time may count as a regression.
    regressed = re.findall(r"error: Regression: (.*)", ran.errors)
    slower = bool(regressed) and "slower" in regressed[0] and "hits" not in regressed[0]
    assert ran.outputs["verdict"] == "passed" or (ran.outputs["verdict"] == "regression" and slower), ran.errors
    assert ran.summary.startswith("### kvbench compare")
    (kept,) = [step["with"]["path"].split() for step in steps() if "upload-artifact" in step["uses"]]
    assert [path for path in kept if not (tmp_path / path).exists()] == []
    assert ElementTree.parse(tmp_path / "kvbench.xml").getroot().get("errors") == "0"
    assert (tmp_path / "baseline.json").stat().st_size < 20_000
    for number in range(1, 6):  # the five runs of the base of several are this one again
        shutil.copytree(tmp_path / "runs" / "base", tmp_path / "runs" / f"base-{number}")
    command = block("several").splitlines()[-1].replace("baseline.json", "several.json")
    subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, env=environment, check=True, timeout=300)
    assert json.loads((tmp_path / "several.json").read_text(encoding="utf-8"))["runs"] == 5
