"""What a broken model gives is no measurement, and outputs that are all the same prove nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvbench.cli.main import main

Captured = pytest.CaptureFixture[str]
SHORT = ("--prompt-tokens", "16", "--output-tokens", "6", "--requests", "3", "--block-size", "4", "--kv-tokens", "64", "--quiet")


def run(small_model: Path, folder: Path, value: float) -> int:
    """The exit code of a run on the small model, whose last weights were set to ``value``."""
    model = AutoModelForCausalLM.from_pretrained(small_model)
    with torch.no_grad():
        model.lm_head.weight.fill_(value)
    model.save_pretrained(folder / "model")
    return main(["run", "pressure", "--model", str(folder / "model"), *SHORT, "--out", str(folder / "run")])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_end_the_run(small_model: Path, tmp_path: Path, value: float, capsys: Captured) -> None:
    assert run(small_model, tmp_path, value) == 4
    assert "error: the logits of step 0 are not finite" in capsys.readouterr().err


def test_one_output_for_all_prompts_proves_nothing(small_model: Path, tmp_path: Path, capsys: Captured) -> None:
    run(small_model, tmp_path, 0.0)
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run"), "--format", "json"]) == 0
    notes = " ".join(json.loads(capsys.readouterr().out)["notes"])
    assert "all 3 prompts, which differ, gave one output, so equal outputs prove nothing" in notes
