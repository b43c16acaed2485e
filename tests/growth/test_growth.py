"""The growth test: what one file registers is in the whole product, from the command line on, and nothing of the product knows its name.

Blocks hold 4 tokens. A first turn is 9 tokens, its answer 4, of which the last has no KV: 12 tokens in 3 full blocks, the prompt in 2.
A second turn is 9 + 4 + 4 = 17 tokens, and 20 with KV: 5 full blocks. The last token of a prompt is always computed.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kvbench.cli.main import main
from kvbench.models.shapes import SHAPES, WEIGHT_SEED
from kvbench.runners.base import Request
from kvbench.runners.engine.model.save_shape import save_model
from kvbench.runs.records import digest
from kvbench.runs.run_folder import Run, read_run
from kvbench.testing.fake_script import Script
from kvbench.testing.fake_server import FakeServer, serving
from kvbench.workloads.draws import Draws
from tests.growth import dialogue
from tests.growth.additions import Signed
from tests.runners.engine.reference import Reference

pytestmark = pytest.mark.usefixtures("additions")

Captured = pytest.CaptureFixture[str]

OPENING, ANSWER, FOLLOW_UP, BLOCK = 9, 4, 4, 4
SECOND = OPENING + ANSWER + FOLLOW_UP
SIZES = ("--talks", "2", "--opening", "9", "--answer", "4", "--follow-up", "4")
BLOCKS = ("--block-size", "4", "--kv-tokens")
AMPLE, SHORT = (*BLOCKS, "256"), (*BLOCKS, "32")

FOUND = {("new", 0): 0, ("new", 1): 12, ("again", 0): 8, ("again", 1): 16}
"""Where all fits, by pass and turn. New: the second turn finds the 3 blocks of the first turn's prompt and answer, 2 without the answer.
Again: all blocks but the one of the last prompt token."""


def run(folder: Path, *words: str) -> Run:
    assert main(["run", "dialogue", *SIZES, *words, "--quiet", "--out", str(folder)]) == 0
    return read_run(folder)


def simulated(folder: Path, *words: str) -> Run:
    return run(folder, "--runner", "simulator", *words)


def attached(folder: Path, server: FakeServer, *words: str) -> Run:
    return run(folder, "--runner", "vllm", "--url", f"none={server.url}", "--vocab", "1000", *words)


def found(run: Run) -> list[tuple[str, int, int, int]]:
    """Of each request its pass, its conversation, its turn, and its tokens from the device, in the order in which they ended."""
    return [(line["pass"], line["session"], line["turn"], line["cached_tokens_device"]) for line in run.requests]


def everything_fits() -> list[tuple[str, int, int, int]]:
    return [(name, talk, turn, FOUND[name, turn]) for name in ("new", "again") for talk in (0, 1) for turn in (0, 1)]


def test_the_experiment_is_one_file_of_less_than_120_lines() -> None:
    assert len(inspect.getsource(dialogue).splitlines()) < 120


# Help.


def test_the_help_lists_it_with_sentence_and_example(capsys: Captured) -> None:
    assert main(["run", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    experiment = dialogue.DialogueExperiment
    assert f"dialogue {experiment.sentence} {experiment.example}" in words


def test_its_own_help_shows_its_options(capsys: Captured) -> None:
    assert main(["run", "dialogue", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "--opening N Prompt of the first turn. [tokens; default: 41]" in words
    assert "--policy NAME Which free block goes first, by the name of an eviction policy. [default: none]" in words
    assert {"--talks", "--answer", "--follow-up"} <= set(words.split())
    assert "--docs" not in words
    assert words.endswith(dialogue.DialogueExperiment.example)


def test_an_option_of_it_is_refused_in_other_experiments(capsys: Captured) -> None:
    assert main(["run", "cyclic", "--opening", "9"]) == 2
    assert "--opening does not apply: the experiment is cyclic" in capsys.readouterr().err


# Runs.


def test_the_engine_finds_prompt_and_answer_and_says_what_transformers_says(tmp_path: Path) -> None:
    measured = run(tmp_path / "run", "--model", "tiny", "--dtype", "float32", *AMPLE)
    assert found(measured) == everything_fits()
    assert [line["prediction"]["exact"] for line in measured.passes] == [True, True]
    save_model(tmp_path / "tiny", SHAPES["tiny"], WEIGHT_SEED)
    plain, vocab = Reference(tmp_path / "tiny", torch.float32), measured.manifest["model"]["vocab"]
    for talk in (0, 1):
        opening, follow_up = (Draws(0, "dialogue", talk, turn).integers(count, 0, vocab) for turn, count in ((0, OPENING), (1, FOLLOW_UP)))
        first = plain.answer(opening, ANSWER).tokens
        second = plain.answer([*opening, *first, *follow_up], ANSWER).tokens
        lines = [line for line in measured.requests if line["session"] == talk]
        assert [line["output_digest"] for line in lines] == [digest(first), digest(second)] * 2
        assert [line["prompt_tokens_sent"] for line in lines] == [OPENING, SECOND] * 2


def test_the_simulator_finds_the_same(tmp_path: Path) -> None:
    assert found(simulated(tmp_path / "run", *AMPLE)) == everything_fits()


def test_a_server_is_sent_its_own_answer_and_finds_the_same(tmp_path: Path) -> None:
    with serving(Script(pool_tokens=256, block_size=BLOCK)) as server:
        measured = attached(tmp_path / "run", server)
        prompts = [body["prompt"] for body in map(json.loads, server.bodies) if len(body["prompt"]) in (OPENING, SECOND)]
    assert found(measured) == everything_fits()
    assert {line["attribution"] for line in measured.requests} == {"counters"}
    assert [line["prediction"]["exact"] for line in measured.passes] == [True, True]
    first, second = prompts[-2:]
    assert second[: OPENING + ANSWER] == [*first, *range(ANSWER)]


# Reports.


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_table_sentence_and_metric_are_in_what_people_read(tmp_path: Path, form: str, capsys: Captured) -> None:
    simulated(tmp_path / "run", *AMPLE)
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run"), "--format", form]) == 0
    text = capsys.readouterr().out
    assert "Turn by turn" in text
    row = {"terminal": "1     2       34     24", "markdown": "| 1    | 2    |   34 |    24 |", "html": "<td>34</td><td>24</td>"}
    assert row[form] in text
    assert "Second turns found 24 of their 34 tokens." in text
    assert "2nd turn" in text
    assert "70.6 %" in text  # 12 of 17
    assert "94.1 %" in text  # 16 of 17


def test_table_sentence_and_metric_are_in_what_programs_read(tmp_path: Path, capsys: Captured) -> None:
    simulated(tmp_path / "run", *AMPLE)
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run"), "--format", "json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    rows = [(0, 0, 18, 0), (0, 1, 34, 24), (1, 0, 18, 16), (1, 1, 34, 32)]
    assert [tuple(row.values()) for row in summary["dialogue"]] == [("none", *row) for row in rows]
    assert summary["sentences"] == ["Second turns found 24 of their 34 tokens."]
    assert [row["metrics"] for row in summary["passes"]] == [{"second_hits": 12 / 17}, {"second_hits": 16 / 17}]
    assert main(["report", str(tmp_path / "run"), "--format", "csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [tuple(int(line[name]) for name in ("pass_index", "turn", "prompt", "found")) for line in lines] == rows
    assert [float(line["second_hits"]) for line in lines] == [12 / 17, 12 / 17, 16 / 17, 16 / 17]


def test_a_format_shows_one_run_and_several_and_stands_in_help(tmp_path: Path, capsys: Captured) -> None:
    for name, pool in (("ample", AMPLE), ("short", SHORT)):
        simulated(tmp_path / name, *pool)
    capsys.readouterr()
    assert main(["report", str(tmp_path / "ample"), "--format", "said"]) == 0
    assert capsys.readouterr().out == "Second turns found 24 of their 34 tokens.\n"
    assert main(["report", str(tmp_path / "ample"), str(tmp_path / "short"), "--format", "said"]) == 0
    assert capsys.readouterr().out == "256: 1\n32: 1\n"
    assert main(["report", "--help"]) == 0
    assert "said (the sentences alone)" in " ".join(capsys.readouterr().out.split())


def test_a_run_of_an_experiment_without_turns_has_no_such_figure(tmp_path: Path, capsys: Captured) -> None:
    words = ["run", "cyclic", "--runner", "simulator", "--docs", "2", "--doc-tokens", "40", "--quiet", "--out", str(tmp_path / "run")]
    assert main([*words, "--json"]) == 0
    assert {row["metrics"]["second_hits"] for row in json.loads(capsys.readouterr().out)["passes"]} == {None}


# Comparisons.


@pytest.mark.parametrize(
    ("base", "new", "rule", "code"),
    [
        ("ample", "ample", "second_hits[none,again] < 94%", 0),  # 16 of 17 are 94.1 %
        ("ample", "ample", "second_hits[none,again] < 95%", 3),
        ("short", "ample", "second_hits[*,*] < -0", 0),
        ("ample", "short", "second_hits[none,again] < -1%", 3),
    ],
)
def test_it_is_compared_and_its_metric_decides_the_exit_code(
    tmp_path: Path, base: str, new: str, rule: str, code: int, capsys: Captured
) -> None:
    for name, pool in (("ample", AMPLE), ("short", SHORT)):
        simulated(tmp_path / name, *pool)
    capsys.readouterr()
    command = ["compare", str(tmp_path / base), str(tmp_path / new), "--allow", "device_tokens", "--fail-on", rule]
    assert main(command) == code
    shown = capsys.readouterr()
    assert "second_hits" in shown.out
    assert (f"hreshold breached: {rule} (none, again: " in shown.err) == (code == 3)
    words = {("short", "ample"): "remembers", ("ample", "short"): "forgets"}
    assert main([*command, "--format", "json"]) == code
    lines = [line for line in json.loads(capsys.readouterr().out)["lines"] if line["figure"] == "second_hits"]
    assert [line["word"] for line in lines] == ["same", words.get((base, new), "same")]


# A policy.

BY_LRU = [0, 12, 0, 12, 8, 12, 8, 12]
"""In a pool of 8 blocks, by conversation and turn. A has a1 to a5, B takes the last 3 for b1 to b3, and for b4 and b5 the place of a5 and
a4, which were used the longest time ago: the tail of what A used last. Again: A finds a1 and a2, then a1 to a3; so does B."""

BY_FIFO = [0, 12, 0, 12, 4, 12, 4, 16]
"""There b4 and b5 take the place of a3 and a2, which were there first: the tail of the first turn. Again: A finds a1 alone, and a2 and a3
take the place of a5 and a4, so that its second turn finds a1 to a3, and takes that of b3 and b2. B finds b1; b2 and b3 take the place of
a1 and b5, so that b4 is still there: its second turn finds b1 to b4."""


def test_a_policy_decides_what_is_found_in_the_simulator_and_in_the_engine(tmp_path: Path) -> None:
    def tokens(run: Run) -> list[int]:
        return [line["cached_tokens_device"] for line in run.requests]

    assert tokens(simulated(tmp_path / "lru", *SHORT)) == BY_LRU
    assert tokens(simulated(tmp_path / "fifo", *SHORT, "--policy", "fifo")) == BY_FIFO
    measured = run(tmp_path / "engine", "--model", "tiny", *SHORT, "--policy", "fifo")
    assert tokens(measured) == BY_FIFO
    assert [line["prediction"]["exact"] for line in measured.passes] == [True, True]
    assert measured.manifest["arms"][0]["device_policy"] == "fifo"


def test_a_policy_that_nobody_has_and_one_for_a_server_are_refused(tmp_path: Path, capsys: Captured) -> None:
    words = ["run", "dialogue", "--quiet", "--out", str(tmp_path / "run"), "--policy", "fifth", "--runner"]
    assert main([*words, "simulator"]) == 2
    assert "the simulator has no eviction policy fifth; it has belady, fifo, lru, mru" in capsys.readouterr().err
    assert main([*words, "vllm"]) == 2
    assert "--policy does not apply: the runner is vllm" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# An endpoint.


def test_an_endpoint_sends_what_it_encodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[bytes] = []
    plain = Signed.encode

    def encode(endpoint: Signed, request: Request, **asked: Any) -> bytes:
        encoded.append(plain(endpoint, request, **asked))
        return encoded[-1]

    monkeypatch.setattr(Signed, "encode", encode)
    with serving(Script(pool_tokens=256, block_size=BLOCK)) as server:
        measured = attached(tmp_path / "run", server, "--endpoint", "signed")
        bodies = list(server.bodies)
    assert sorted(bodies) == sorted(encoded)
    assert {json.loads(body)["user"] for body in bodies} == {"growth"}
    assert found(measured) == everything_fits()


def test_an_endpoint_that_nobody_has_is_refused(tmp_path: Path, capsys: Captured) -> None:
    words = ("--runner", "vllm", "--url", "none=http://127.0.0.1:9", "--endpoint", "telepathy")
    assert main(["run", "dialogue", *words, "--out", str(tmp_path / "run")]) == 2
    assert "--endpoint telepathy: there is none of this name; there are completions, signed" in capsys.readouterr().err
