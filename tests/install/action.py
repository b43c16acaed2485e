"""A composite action of GitHub's, run here: its inputs, its conditions and its shell steps, as far as ``action.yml`` uses them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
SHELL = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
"""What ``shell: bash`` is on GitHub."""


@dataclass
class Ran:
    """What a run of the action did. ``codes``: of each step that ran, by its name; ``outputs``: of the action."""

    codes: dict[str, int] = field(default_factory=dict)
    errors: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    @property
    def failed(self) -> bool:
        """Whether the job would be red."""
        return any(self.codes.values())


def run_action(folder: Path, given: Mapping[str, str], skip: tuple[str, ...] = ("Install",)) -> Ran:
    """Run the action's steps in a folder, with these inputs, but for those that are skipped by name.

    Raises:
        KeyError: an input that the action does not have.
    """
    inputs = {name: str(item.get("default", "")) for name, item in ACTION["inputs"].items()}
    for name, value in given.items():
        inputs[name] = value if name in inputs else ACTION["inputs"][name]
    values = {f"inputs.{name}": value for name, value in inputs.items()}
    ran = Ran()
    summary = folder / "step-summary.md"
    for step in ACTION["runs"]["steps"]:
        if step["name"] in skip or not _holds(step.get("if", "true"), values, ran):
            continue
        output = folder / f"output-{step['name']}"
        output.touch()
        environment = {
            **os.environ,
            **{name: _filled(str(text), values) for name, text in step.get("env", {}).items()},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
        }
        assert step["shell"] == "bash"
        done = subprocess.run([*SHELL, step["run"]], cwd=folder, env=environment, capture_output=True, text=True, check=False)
        ran.codes[step["name"]] = done.returncode
        ran.errors += done.stderr
        for line in output.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            values[f"steps.{step.get('id')}.outputs.{name}"] = value
        output.unlink()
    ran.outputs = {name: _filled(item["value"], values) for name, item in ACTION["outputs"].items()}
    ran.summary = summary.read_text(encoding="utf-8") if summary.exists() else ""
    return ran


def _filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its expressions; one that nothing is known of is empty, as on GitHub."""
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: values.get(found[1], ""), text)


def _holds(condition: str, values: Mapping[str, str], ran: Ran) -> bool:
    """Whether a step runs: ``a == 'b'``, ``a != 'b'``, after no failure; or ``!cancelled()``, after any."""
    if condition == "${{ !cancelled() }}":
        return True
    if ran.failed or condition == "true":
        return not ran.failed
    found = re.fullmatch(r"([\w.-]+) (==|!=) '(.*)'", condition)
    assert found is not None, condition
    return (values[found[1]] == found[3]) == (found[2] == "==")
