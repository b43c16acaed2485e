"""Words of servers, and names in folders of others: nothing in them drives a terminal, a page or a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.main import main

Captured = pytest.CaptureFixture[str]
SIGNS = "\x1b]0;t\x07\x1b[2J\x00\x08\x7f\x85\x9b31m\u202e\u2028\r"
DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
RUN = ["run", "--runner", "simulator", "--docs", "3", "--doc-tokens", "600", "--kv-tokens", "1024", "--prefill-rate", "1000",
       "--restore-rate", "100000", "--quiet"]  # fmt: skip


def run_of_another(folder: Path, name: str) -> Path:
    """A run in whose files this stands for an arm, a pass, the model, the machine, and a reason not to trust it."""
    assert main([*RUN, "--out", str(folder)]) == 0
    environment = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["environment"]
    for file in folder.glob("*.json*"):
        text = file.read_text(encoding="utf-8")
        for word in ("cpu", "reverse"):
            text = text.replace(f'"{word}"', json.dumps(word + name))
        file.write_text(text, encoding="utf-8")
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["environment"] = environment  # it has a key of the arm's name
    manifest["model"]["name"] = manifest["environment"]["os"] = manifest["kvbench"] = name
    manifest |= {"status": "invalid", "reasons": [name], "command": ["kvbench", name]}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of_another(tmp_path_factory.mktemp("others") / "run", SIGNS)


@pytest.mark.parametrize("options", [[], ["--per-document"], ["--per-repeat"]], ids=["plain", "documents", "repeats"])
@pytest.mark.parametrize("form", ["terminal", "markdown", "html", "csv", "json"])
def test_no_control_character_is_in_a_report(folder: Path, tmp_path: Path, capsys: Captured, form: str, options: list[str]) -> None:
    capsys.readouterr()
    assert main(["report", str(folder), "--format", form, *options, "-o", str(tmp_path / "file")]) == 0
    assert main(["report", str(folder), "--format", form, *options]) == 0
    captured = capsys.readouterr()
    for text in (captured.out, captured.err, (tmp_path / "file").read_bytes().decode()):
        assert not DANGEROUS.findall(text)
    if form == "json":  # programs read what was there
        assert SIGNS in json.loads(captured.out)["reasons"]


@pytest.mark.parametrize("form", ["terminal", "markdown", "html", "csv", "json"])
def test_nor_in_one_of_several_runs(folder: Path, capsys: Captured, form: str) -> None:
    capsys.readouterr()
    assert main(["report", str(folder), str(folder), "--format", form, "--full"]) == 0
    assert not DANGEROUS.findall(capsys.readouterr().out)


@pytest.mark.parametrize("form", ["terminal", "markdown", "github", "json", "junit"])
def test_nor_in_a_comparison(folder: Path, tmp_path: Path, capsys: Captured, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    capsys.readouterr()
    page = tmp_path / "page.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    main(["compare", str(folder), str(folder), "--format", form])
    captured = capsys.readouterr()
    for text in (captured.out, captured.err, page.read_text(encoding="utf-8") if page.exists() else ""):
        assert not DANGEROUS.findall(text)


def test_nor_in_plots_whose_files_stay_in_their_folder(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["report", str(folder), "--plots", str(tmp_path / "plots")]) == 0
    for file in (tmp_path / "plots").iterdir():
        assert not DANGEROUS.findall(file.read_text(encoding="utf-8"))


def test_nor_in_an_error(tmp_path: Path, capsys: Captured) -> None:
    for arguments in (
        ["report", str(tmp_path / SIGNS.replace("\x00", ""))],
        ["run", "--model", SIGNS],
        [SIGNS],
        ["plan", "--model", SIGNS],
    ):
        assert main(arguments) in (1, 2)
        captured = capsys.readouterr()
        assert not DANGEROUS.findall(captured.err + captured.out)
        assert captured.err.count("\n") == 1


def test_nor_in_a_log(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"ttft_ms": 5.0, "arm": f"a{SIGNS}", "pass": "p", "error": None}) + "\n", encoding="utf-8")
    for form in ("terminal", "markdown", "html", "csv"):
        main(["report", "--csv", str(log), "--format", form])
        captured = capsys.readouterr()
        assert not DANGEROUS.findall(captured.err + captured.out)


def test_a_name_is_no_element(tmp_path: Path, capsys: Captured) -> None:
    """Quotes and tags: in Markdown, also in a path, and in the ids of a page's plots."""
    folder = run_of_another(tmp_path / "run`<img src=q>`", "z\"><script>alert('1')</script><img src=q>")
    capsys.readouterr()
    for form in ("markdown", "html"):
        assert main(["report", str(folder), "--format", form]) == 0
        text = capsys.readouterr().out
        assert "<script>alert" not in text
        assert "<img src=q>" not in text


def test_a_name_adds_no_line(tmp_path: Path, capsys: Captured) -> None:
    run_of_another(tmp_path / "a", "x\n\n::error::y\n# z")
    run_of_another(tmp_path / "b", "x  ::error::y # z")
    for form in ("terminal", "markdown"):
        texts = []
        for name in ("a", "b"):
            capsys.readouterr()
            assert main(["report", str(tmp_path / name), "--format", form]) == 0
            texts.append(capsys.readouterr().out.replace(str(tmp_path / name), "PATH"))
        assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["=1+1", "+1+cmd", "@SUM(1)", "-2+3", " =1", "\t=1", "\n=1", "-cmd|' /C calc'!A0"])
def test_a_cell_of_a_csv_is_no_formula(tmp_path: Path, capsys: Captured, name: str) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"ttft_ms": 5.0, "arm": name, "pass": name, "error": None}) + "\n", encoding="utf-8")
    assert main(["report", "--csv", str(log), "--format", "csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert any(name.strip() in cell for row in rows for cell in row)
    for row in rows:
        for cell in row:
            assert cell.lstrip()[:1] not in ("=", "+", "@")
            assert not cell.lstrip().startswith("-") or float(cell) < 0
