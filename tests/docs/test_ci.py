"""The base and the workflow of docs/ci.md are run: every step that is kvbench's own, in order, in an empty repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvbench.comparison.compare import compare
from tests.made import Made, cyclic

TEXT = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """The code block behind a mark of the page."""
    match = re.search(rf"<!-- test: {name} -->\n```\w+\n(.*?)```", TEXT, re.DOTALL)
    assert match is not None
    return match[1]


def steps(workflow: str) -> list[str]:
    """What the workflow's steps run, but for the installation, which the tests' own environment stands for."""
    return [command for command in re.findall(r"^ +run: (.+)$", workflow, re.MULTILINE) if not command.startswith("pip ")]


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
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    commands = steps(block("workflow"))
    assert len(commands) == 3
    for command in [*block("base").splitlines(), *commands]:
        done = subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        # Tokens and thresholds must hold; on cores that the tests share, a time may count as a regression.
        regressed = re.findall(r"error: Regression: (.*)", done.stderr)
        assert done.returncode == 0 or (done.returncode == 3 and regressed and "slower" in regressed[0] and "hits" not in regressed[0]), (
            done.stderr
        )
    assert (tmp_path / "summary.md").read_text(encoding="utf-8").startswith("### kvbench compare")
    assert ElementTree.parse(tmp_path / "kvbench.xml").getroot().get("errors") == "0"
    assert (tmp_path / "baseline.json").stat().st_size < 20_000
    for number in range(1, 6):  # the five runs of the base of several are this one again
        shutil.copytree(tmp_path / "runs" / "base", tmp_path / "runs" / f"base-{number}")
    command = block("several").splitlines()[-1].replace("baseline.json", "several.json")
    subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, env=environment, check=True, timeout=300)
    assert json.loads((tmp_path / "several.json").read_text(encoding="utf-8"))["runs"] == 5
