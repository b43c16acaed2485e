"""A folder that was damaged after the run is refused by every command that reads it, in one line that names the file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.main import main

CYCLIC = Path(__file__).parents[1] / "data" / "folders" / "cyclic"
Lines = list[dict[str, Any]]


def edited(folder: Path, file: str, edit: Callable[[Any], Any]) -> Path:
    """A copy of a complete run in which one file was changed; a file of lines is given as a list."""
    shutil.copytree(CYCLIC, folder)
    path, text = folder / file, (folder / file).read_text(encoding="utf-8")
    if file.endswith(".json"):
        path.write_text(json.dumps(edit(json.loads(text))), encoding="utf-8")
    else:
        path.write_text(
            "".join(json.dumps(line) + "\n" for line in edit([json.loads(line) for line in text.splitlines()])), encoding="utf-8"
        )
    return folder


def with_field(place: int, **fields: Any) -> Callable[[Lines], Lines]:
    return lambda lines: [line | fields if number == place else line for number, line in enumerate(lines)]


def without(field: str) -> Callable[[Lines], Lines]:
    return lambda lines: [{name: value for name, value in line.items() if name != field} for line in lines]


REQUESTS, PASSES, MANIFEST = "requests.jsonl", "passes.jsonl", "manifest.json"
DAMAGES: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "a line doubled": (REQUESTS, lambda lines: [*lines, lines[3]], "requests.jsonl: request_id none-r0-p0-3 is there twice"),
    "a line deleted": (
        REQUESTS,
        lambda lines: lines[1:],
        "requests.jsonl: has 3 requests (0 failed) of arm none, repeat 0, pass sequential",
    ),
    "an arm's requests cut": (REQUESTS, lambda lines: [line for line in lines if line["arm"] == "none"], "requests.jsonl: has 0 requests"),
    "an arm cut from the manifest": (MANIFEST, lambda found: found | {"arms": found["arms"][:1]}, "manifest.json has no such arm"),
    "an arm's passes cut": (PASSES, lambda lines: [line for line in lines if line["arm"] == "none"], "passes.jsonl: has no arm cpu"),
    "a pass doubled": (
        PASSES,
        lambda lines: [*lines, lines[0]],
        "passes.jsonl: arm none, repeat 0, pass sequential, index 0 is there twice",
    ),
    "a pass deleted": (PASSES, lambda lines: lines[:-1], "passes.jsonl: has no arm cpu, repeat 0, pass reverse"),
    "a repeat that is not there": (
        MANIFEST,
        lambda found: found | {"config": found["config"] | {"repeats": 2}},
        "has no arm none, repeat 1",
    ),
    "a negative time": (REQUESTS, with_field(2, end_s=-1.0), "line 3: end_s: Input should be greater than or equal to 0"),
    "negative tokens": (REQUESTS, with_field(2, prompt_tokens=-7), "line 3: prompt_tokens: Input should be greater than or equal to 0"),
    "a wrong sum": (
        REQUESTS,
        with_field(2, computed_tokens=7),
        "none-r0-p0-2: cached_tokens_device + cached_tokens_host + computed_tokens",
    ),
    "out of order": (
        REQUESTS,
        with_field(2, first_token_s=0.0),
        "none-r0-p0-2: sent_s, first_token_s, last_token_s, end_s are not one after",
    ),
    "outside its pass": (REQUESTS, with_field(2, last_token_s=9.0, end_s=9.0), "requests of arm none, repeat 0, pass sequential took"),
    "a wrong type": (REQUESTS, with_field(4, ttft_ms="3.5"), "line 5: ttft_ms: Input should be a valid number"),
    "a type within": (
        REQUESTS,
        with_field(4, error={"kind": 3, "message": "", "status": None}),
        "line 5: error.kind: Input should be a valid",
    ),
    "a field gone": (REQUESTS, without("doc_id"), "requests.jsonl: line 1: doc_id: Field required"),
    "no number": (REQUESTS, with_field(1, ttft_ms=float("inf")), "line 2: ttft_ms: Input should be"),
    "a huge number": (REQUESTS, with_field(1, prompt_tokens=10**400), "line 2: prompt_tokens: "),
    "a type in a pass": (PASSES, with_field(0, counters_before=None), "passes.jsonl: line 1: counters_before: Input should be an object"),
    "a prediction cut": (
        PASSES,
        lambda lines: [lines[0] | {"prediction": lines[0]["prediction"] | {"requests": [], "ttft_ms": []}}, *lines[1:]],
        "passes.jsonl: prediction.requests of arm none, repeat 0, pass sequential lacks",
    ),
    "a type in the manifest": (
        MANIFEST,
        lambda found: found | {"working_set_ratio": "much"},
        "manifest.json: working_set_ratio: Input should",
    ),
    "a field of the manifest gone": (
        MANIFEST,
        lambda found: {name: value for name, value in found.items() if name != "status"},
        "manifest.json: status: Field required",
    ),
    "an option of the wrong type": (
        MANIFEST,
        lambda found: found | {"config": found["config"] | {"overlap": "x"}},
        "manifest.json: config.overlap",
    ),
    "an option gone": (
        MANIFEST,
        lambda found: found | {"config": {"experiment": "cyclic"}},
        "manifest.json: config.runner: Field required",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_command_refuses_it(damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, edit, words = DAMAGES[damage]
    folder = str(edited(tmp_path / "run", file, edit))
    commands = ["report", folder], ["compare", str(CYCLIC), folder], ["baseline", folder], ["plan", "--calibrate", folder]
    for command in commands:
        assert main(list(command)) == 2, command
        error = capsys.readouterr().err
        assert error.startswith("kvbench: error: ")
        assert words in error
        assert error.count("\n") == 1


def test_deep_json_is_no_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(CYCLIC, tmp_path / "run")
    (tmp_path / "run" / MANIFEST).write_text("[" * 100_000, encoding="utf-8")
    assert main(["report", str(tmp_path / "run")]) == 2
    assert "manifest.json: cannot be read" in capsys.readouterr().err


def test_an_event_of_the_wrong_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(CYCLIC.with_name("pressure"), tmp_path / "run")
    path = tmp_path / "run" / "events.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace('"step":', '"stop":'), encoding="utf-8")
    assert main(["report", str(tmp_path / "run"), "--format", "html"]) == 2
    assert "events.jsonl: line 1: step: Field required" in capsys.readouterr().err
