"""kvbench as a library: runs as tables, the summary that reports show, comparisons; and what importing it costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kvbench
from kvbench.cli.main import main
from kvbench.errors import UsageError
from tests.made import Made, cyclic


def simulated(folder: Path, *options: str) -> Path:
    words = ["run", "--runner", "simulator", "--docs", "3", "--doc-tokens", "600", "--kv-tokens", "1024", *options]
    assert main([*words, "--quiet", "--out", str(folder)]) == 0
    return folder


def test_requests_and_passes_are_tables_with_a_row_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = kvbench.read_run(simulated(tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "requests.jsonl").read_text().splitlines()]
    assert run.requests.to_dict("list")["request_id"] == [line["request_id"] for line in lines]
    assert set(run.requests.columns) == set(lines[0])
    assert int(run.requests["prompt_tokens"].sum()) == sum(line["prompt_tokens"] for line in lines)
    assert run.requests["ttft_ms"].isna().all()  # unknown, and no 0
    assert len(run.passes) == 6
    assert (run.status, run.reasons, run.path) == ("complete", (), tmp_path / "run")


def test_the_summary_is_what_the_reports_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = simulated(tmp_path / "run")
    capsys.readouterr()
    assert main(["report", str(folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(kvbench.read_run(folder).summary().to_json()))
    assert kvbench.read_run(str(folder)).summary(per_repeat=True).repeats


def test_a_comparison_is_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = (simulated(tmp_path / name) for name in ("base", "new"))
    found = kvbench.compare(base, kvbench.read_run(new), fail_on=["computed[cpu,repeat] > 1"])
    capsys.readouterr()
    assert main(["compare", str(base), str(new), "--fail-on", "computed[cpu,repeat] > 1", "--format", "json"]) == 3
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found.to_json()))
    assert [rule.rule for rule in found.failed_rules] == ["computed[cpu,repeat] > 1"]


def test_what_is_no_run_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        kvbench.read_run(tmp_path)
    Made().write(tmp_path / "run", cyclic)
    with pytest.raises(UsageError, match="no figure is called"):
        kvbench.compare(tmp_path / "run", tmp_path / "run", fail_on=["speed[none,repeat] > 1"])


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = {"torch", "matplotlib", "pandas", "numpy", "scipy", "pydantic", "transformers"}
    code = f"import sys, kvbench; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(kvbench.__file__).parent / "py.typed").is_file()


def test_the_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "after"):
        rates = ["--prefill-rate", "8000", "--restore-rate", "500000"]
        simulated(Path("runs") / name, *rates)
    assert main(["baseline", "runs/first", "-o", "baseline.json"]) == 0
    page = (Path(__file__).parents[2] / "docs" / "library.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(programs) == 3
    for program in programs:
        exec(program, {})
