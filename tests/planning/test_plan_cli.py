"""``kvbench plan`` as the user meets it: its formats, its plots, and one line for everything that is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.main import main

RATES = ("--prefill-rate", "8700", "--restore-rate", "570000", "--overhead-ms", "30")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["plan", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("options", [(), RATES, ("--profile", "documents"), ("--profile", "engine", "--reuse", "0"), ("--reuse", "0.5")])
def test_the_tables_fit_80_columns(capsys: pytest.CaptureFixture[str], options: tuple[str, ...]) -> None:
    code, out, err = run(capsys, *options)
    assert (code, err) == (0, "")
    text = out.split("\n\nStart beside vLLM")[0].split("\n\nMeasure it")[0]
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_terminal_says_what_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *RATES)
    assert out.startswith("plan | profile vllm | qwen2.5-1.5b | 10 documents of 5,011 + 14 | pool 21,520\n")
    rows = {tuple(line.split()[:2]): line.split()[2:] for line in out.splitlines() if line.startswith(("none ", "cpu "))}
    assert rows["none", "repeat"] == ["10", "607.6", "607.6", "1.0x", "0", "-", "50,250"]
    assert rows["cpu", "repeat"][-3:] == ["0", "48,640", "1,610"]
    assert re.search(r"^this +21,520 +0\.57 +0\.0 % +96\.8 % +607\.6 ", out, re.MULTILINE)
    assert re.search(r"^cpu tier to add +--host-gib 1\.63, evicts from 80 % +60,928 +1\.63$", out, re.MULTILINE)
    assert "as given: an\nestimate." in out


def test_an_estimate_is_marked_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--reuse", "0.5")
    assert "finds everything, estimate" in out
    assert "never evicts" in out


def test_json_is_the_whole_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = run(capsys, "--json")
    plan: dict[str, Any] = json.loads(out)
    assert plan["format"] == "kvbench.plan/1"
    assert plan["smallest_all"] == {"tokens": 50_272, "gib": 50_272 * 28_672 / 2**30, "units": 3142}
    assert plan["passes"][1]["p50_ms"] is None
    file = tmp_path / "plan.json"
    code, written, _ = run(capsys, "--format", "json", "-o", str(file))
    assert (code, written, json.loads(file.read_text())) == (0, "", plan)


def test_markdown_has_the_same_tables(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--format", "markdown")
    assert out.startswith("**plan · profile vllm · ")
    assert "| cpu  | repeat     | 10 |      0 | 48,640 |    1,610 |" in out
    assert out.count("```") == 4


def test_plots_of_every_later_pass_are_the_same_each_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ("--passes", "sequential,repeat,zipf:1.1", "--docs", "4", "--kv-tokens", "10000")
    for name in ("one", "two"):
        assert run(capsys, *options, *RATES, "--plots", str(tmp_path / name))[0] == 0
    files = sorted(file.name for file in (tmp_path / "one").iterdir())
    assert files == ["plan-repeat.svg", "plan-zipf-1.1.svg"]
    for name in files:
        text = (tmp_path / "one" / name).read_text()
        assert text == (tmp_path / "two" / name).read_text()
        assert all(words in text for words in ("prompt tokens found (%)", "predicted TTFT p50 (ms)", "device pool (tokens)", "no tier"))
    run(capsys, *options, "--plots", str(tmp_path / "untimed"))
    assert "predicted TTFT" not in (tmp_path / "untimed" / "plan-repeat.svg").read_text()


def test_options_can_stand_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("docs = 5\nkv-tokens = 8000\n", encoding="utf-8")
    _, out, _ = run(capsys, "--config", str(file), "--docs", "6")
    assert "6 documents of 5,011 + 14 | pool 8,000" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kv-tokens", "4000"), "document 0: 5,025 prompt and 8 output tokens need a pool of 5,056 tokens, this one has 4,000"),
        (("--kv-tokens", "10"), "--kv-tokens 10 holds no block of --block-size 16"),
        (("--chunk-tokens", "100"), "--chunk-tokens 100 is not a multiple of --block-size 16"),
        (("--model", "nope"), "--model nope: no such folder, and no named shape"),
        (("--bytes-per-token", "0"), "--bytes-per-token: "),
        (("--bytes-per-token", "9", "--model", "tiny"), "--model does not apply: --bytes-per-token stands in its place"),
        (("--bytes-per-token", "9", "--kv-dtype", "fp8"), "--kv-dtype does not apply"),
        (("--kv-dtype", "int3"), "--kv-dtype: "),
        (("--prefill-rate", "5"), "--prefill-rate needs --restore-rate too, or --calibrate RUN_DIR"),
        (("--overhead-ms", "5"), "--overhead-ms needs --prefill-rate too"),
        (("--pool-tokens", "9"), "--pool-tokens: FROM:TO in tokens is expected"),
        (("--pool-tokens", "9:5"), "--pool-tokens: FROM:TO in tokens is expected"),
        (("--pool-tokens", "100:200"), "--pool-tokens 100:200: no request fits; the smallest pool that runs one has 5,056 tokens"),
        (("--profile", "documents", "--block-size", "16"), "--block-size does not apply: the profile documents keeps whole documents"),
        (("--profile", "engine", "--from-server", "http://h"), "--from-server does not apply: the profile is engine"),
        (("--from-server", "127.0.0.1:8000"), "not the address of a server; it should look like http://127.0.0.1:8000"),
        (("--from-server", "http://h", "--kv-tokens", "9000"), "--kv-tokens does not apply: --from-server tells it"),
        (("--documents", "none", "--model", "tiny"), "--documents none: no such folder"),
        (("--calibrate", "none"), "none: not a run folder"),
        (("--config", "none.toml"), "--config none.toml: cannot be read"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("kvbench: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_folder_for_plots_that_is_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, _, err = run(capsys, "--plots", str(file))
    assert code == 2
    assert f"--plots {file}: cannot be written (File exists)" in err


def test_a_plan_starts_without_what_it_does_not_need() -> None:
    code = (
        "import sys; from kvbench.cli.main import main; main(['plan', '--prefill-rate', '1', '--restore-rate', '1']); "
        "print(sorted({'torch', 'transformers', 'pandas', 'scipy', 'matplotlib', 'httpx'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
