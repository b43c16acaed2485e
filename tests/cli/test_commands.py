"""The commands through ``main``, with a made run instead of a measured one; errors are one line and the right code."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

import kvbench.session
from kvbench.cli import output
from kvbench.cli.main import main
from kvbench.cli.progress import ProgressBar, ProgressLines, watcher
from kvbench.config.run import RunConfig
from kvbench.errors import Interrupted, OutOfMemory, RunFailed, UsageError
from kvbench.runs.records import RequestError, RequestKey
from kvbench.session.watcher import Watcher
from tests.made import DOCUMENT, OUTPUT, QUESTION, Answer, Made, Script, cyclic, make_record

ROOT = str(Path(__file__).parents[2])


@dataclass
class FakeSession:
    """Stands where the session stands: keeps what it was given, and writes a made run."""

    path: Path
    script: Script = cyclic
    error: BaseException | None = None
    reasons: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def run(self, config: RunConfig, out: Path | None, watcher: Watcher, command: list[str]) -> Any:
        self.calls.append({"config": config, "out": out, "watcher": watcher, "command": command})
        if self.error is not None:
            raise self.error
        Made().write(self.path, self.script)
        return type("Finished", (), {"path": self.path, "reasons": self.reasons})


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    fake = FakeSession(tmp_path / "made")
    module = ModuleType("kvbench.session.session")
    module.run = fake.run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kvbench.session.session", module)
    monkeypatch.setattr(kvbench.session, "session", module, raising=False)
    return fake


Captured = pytest.CaptureFixture[str]


def fails(capsys: Captured, code: int, *argv: str) -> str:
    """Run a command that must fail with ``code``, say nothing on stdout and one line on stderr; that line."""
    assert main(argv) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kvbench: error: ")
    assert captured.err.count("\n") == 1
    return captured.err.strip()


def test_version(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kvbench {kvbench.__version__}\n"


def test_run_prints_the_table_and_nothing_else(session: FakeSession, capsys: Captured) -> None:
    assert main(["run"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("cyclic | engine on cpu")
    assert captured.out.endswith(f"Run folder: {session.path}\n")
    assert captured.err == ""


def test_run_passes_on_only_what_was_given(session: FakeSession, capsys: Captured, tmp_path: Path) -> None:
    argv = [
        "run",
        "cyclic",
        "--docs",
        "7",
        "--tier",
        "none",
        "--tier",
        "cpu",
        "--passes",
        "sequential,repeat",
        "--compile",
        "--out",
        str(tmp_path / "o"),
    ]
    assert main(argv) == 0
    call = session.calls[0]
    assert call["config"].model_fields_set == {"experiment", "docs", "tier", "passes", "compile"}
    assert (call["config"].docs, call["config"].tier, call["config"].passes) == (7, ("none", "cpu"), ("sequential", "repeat"))
    assert call["config"].compile is True
    assert call["out"] == tmp_path / "o"
    assert call["command"] == ["kvbench", *argv]


def test_options_go_over_the_file(session: FakeSession, capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("docs = 4\ndoc-tokens = 100\nno_such = 1\n")
    assert "no_such: there is no such key" in fails(capsys, 2, "run", "--config", str(file))
    file.write_text("docs = 4\ndoc-tokens = 100\n")
    assert main(["run", "--config", str(file), "--docs", "5"]) == 0
    assert (session.calls[0]["config"].docs, session.calls[0]["config"].doc_tokens) == (5, 100)


def test_json_is_one_document(session: FakeSession, capsys: Captured) -> None:
    assert main(["run", "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["path"] == str(session.path)
    assert captured.err == ""


def test_per_document_shows_document_five(session: FakeSession, capsys: Captured) -> None:
    assert main(["run", "--per-document"]) == 0
    assert "none  reverse     5" in capsys.readouterr().out


def test_an_untrusted_run_prints_its_table_and_exits_with_4(session: FakeSession, capsys: Captured) -> None:
    session.script = lambda arm, *rest: Answer(5.0, error=RequestError("timeout", "no answer") if rest[-1] == 0 else None)
    session.reasons = ["the server restarted"]
    assert main(["run"]) == 4
    captured = capsys.readouterr()
    assert "TTFT p50" in captured.out
    assert captured.err.startswith("kvbench: error: invalid measurement: the server restarted; 6 of 60 requests failed (timeout)")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("--out x: exists already"), 2, "--out x: exists already"),
        (RunFailed("no"), 1, "no"),
        (OutOfMemory("the weights do not fit"), 1, "the weights do not fit"),
        (Interrupted("stopped; runs/x holds 3 requests"), 130, "stopped; runs/x holds 3 requests"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "out of memory; lower --kv-tokens"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 1, "torch is not installed, and the engine needs it"),
        (ValueError("two\nlines"), 1, "internal error: ValueError: two lines; set KVBENCH_DEBUG=1"),
    ],
)
def test_errors_of_a_run(session: FakeSession, capsys: Captured, error: BaseException, code: int, words: str) -> None:
    session.error = error
    assert words in fails(capsys, code, "run")


def test_debug_shows_the_traceback(session: FakeSession, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVBENCH_DEBUG", "1")
    session.error = ValueError("odd")
    assert main(["run"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "Missing command"),
        (["rnu"], "Did you mean 'run'?"),
        (["run", "--dosc", "3"], "No such option: --dosc (Possible options: --disk, --docs, --vocab)"),
        (["run", "--docs"], "Option '--docs' requires an argument"),
        (["run", "cyclic", "again"], "unexpected extra argument"),
        (["run", "square"], "EXPERIMENT: Input should be 'cyclic', 'trace', 'pressure', 'sharing' or 'fragmentation' (got 'square')"),
        (["run", "--docs", "-1"], "--docs: Input should be greater than or equal to 1, or 'auto' (got '-1')"),
        (["run", "--docs", "many"], "--docs: Input should be a valid integer"),
        (["run", "--docs", ""], "--docs: Input should be a valid integer"),
        (["run", "--doc-tokens", "1e999"], "--doc-tokens: Input should be a valid integer"),
        (["run", "--overlap", "nan"], "--overlap: "),
        (["run", "--overlap", "inf"], "--overlap: Input should be less than or equal to 1"),
        (["run", "--host-gib", "-1"], "--host-gib: "),
        (["run", "--tier", "gpu"], "--tier: Input should be 'none', 'cpu', 'lmcache-inproc', 'disk', 'redis' or 'native' (got 'gpu')"),
        (["run", "--tier", "cpu,cpu"], "--tier: each tier may be named once"),
        (["run", "--passes", "sideways"], "'sideways' is no pass"),
        (["run", "--passes", "zipf:0"], "the skew of zipf:S is a number above 0"),
        (["run", "--tier", "none", "--host-tokens", "5"], "--host-tokens does not apply: no arm has a cpu tier"),
        (["run", "--config", "/nowhere.toml"], "--config /nowhere.toml: cannot be read"),
        (["report"], "Missing argument 'RUN_DIR'"),
        (["report", "/nowhere"], "/nowhere: not a run folder"),
        (["report", "x", "--format", "pdf"], "'pdf' is not one of 'terminal', 'markdown', 'html', 'csv', 'json'"),
    ],
)
def test_wrong_use(session: FakeSession, capsys: Captured, argv: list[str], words: str) -> None:
    assert words in fails(capsys, 2, *argv)
    assert session.calls == []


# report


@pytest.fixture
def made(tmp_path: Path) -> Path:
    Made().write(tmp_path / "made", cyclic)
    return tmp_path / "made"


@pytest.mark.parametrize(
    ("name", "start"), [("terminal", "cyclic | "), ("markdown", "**cyclic"), ("csv", "arm,pass_name"), ("json", "{\n")]
)
def test_report_formats(made: Path, capsys: Captured, name: str, start: str) -> None:
    assert main(["report", str(made), "--format", name]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(start)
    assert captured.err == ""


def test_report_shows_what_run_showed(session: FakeSession, capsys: Captured) -> None:
    main(["run", "--per-document"])
    shown = capsys.readouterr().out
    main(["report", str(session.path), "--per-document"])
    assert capsys.readouterr().out == shown


def test_report_writes_a_file(made: Path, capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "table.md"
    assert main(["report", str(made), "--format", "markdown", "-o", str(file)]) == 0
    assert file.read_text().startswith("**cyclic")
    assert capsys.readouterr().out == ""


def test_report_to_a_file_that_cannot_be_written(made: Path, capsys: Captured, tmp_path: Path) -> None:
    assert "cannot be written (No such file or directory)" in fails(capsys, 2, "report", str(made), "-o", str(tmp_path / "no" / "table.md"))


@pytest.mark.parametrize("spoil", [lambda text, _: text[:-40], lambda text, lines: text.rsplit("\n", lines)[0], lambda *_: ""])
def test_report_reads_a_run_that_was_cut_short(made: Path, capsys: Captured, spoil: Callable[[str, int], str]) -> None:
    for name, lines in (("requests", 20), ("passes", 3)):  # in the middle of a pass
        file = made / f"{name}.jsonl"
        file.write_text(spoil(file.read_text(), lines))
    manifest = json.loads((made / "manifest.json").read_text())
    (made / "manifest.json").write_text(json.dumps({**manifest, "status": "running"}))
    assert main(["report", str(made)]) == 0
    assert "still marked as running" in " ".join(capsys.readouterr().out.split())


def test_report_names_a_truncated_line(made: Path, capsys: Captured) -> None:
    file, passes, manifest = made / "requests.jsonl", made / "passes.jsonl", made / "manifest.json"
    file.write_text(file.read_text()[:-40])
    assert "line 60 is truncated and was skipped, in a run that is marked complete" in fails(capsys, 2, "report", str(made))
    passes.write_text("".join(passes.read_text().splitlines(keepends=True)[:-1]))
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "status": "running"}))
    assert main(["report", str(made)]) == 0
    assert "note: requests.jsonl: line 60 is truncated and was skipped" in capsys.readouterr().out


def test_report_of_a_broken_line_in_the_middle(made: Path, capsys: Captured) -> None:
    file = made / "requests.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0][:20], *lines[1:]]) + "\n")
    assert "line 1 is not JSON" in fails(capsys, 2, "report", str(made))


def test_report_of_a_manifest_that_is_none(made: Path, capsys: Captured) -> None:
    (made / "manifest.json").write_text("[]")
    assert "format is None" in fails(capsys, 2, "report", str(made))


# stdout


def test_a_reader_that_stops_reading_is_no_error(made: Path) -> None:
    code = f"import sys; from kvbench.cli.main import main; sys.exit(main(['report', {str(made)!r}]))"
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_that_knows_no_dash_gets_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding="ascii"))
    output.write("– 1\n")
    assert buffer.getvalue() == b"? 1\n"


# progress


def test_a_bar_in_a_terminal_lines_elsewhere_and_nothing_with_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(watcher(quiet=False)) is ProgressLines
    assert type(watcher(quiet=True)) is Watcher
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert type(watcher(quiet=False)) is ProgressBar
    assert type(watcher(quiet=True)) is Watcher


def test_lines_tell_of_servers_and_passes_and_of_requests_in_between(capsys: Captured) -> None:
    lines = ProgressLines(every_s=0.05)
    lines.note("loading tiny")
    lines.note("starting vLLM for arm cpu; log: runs/x/server-cpu-r1.log")
    assert capsys.readouterr().err == "kvbench: starting vLLM for arm cpu; log: runs/x/server-cpu-r1.log\n"
    time.sleep(0.2)
    assert "kvbench: starting vLLM for arm cpu: 0 s so far\n" in capsys.readouterr().err
    lines.started(60)
    lines.pass_started("cpu", 1, "repeat")
    assert "kvbench: cpu repeat (repeat 2): 0 of 60 requests done\n" in capsys.readouterr().err
    for position, ttft in enumerate([100.0, 300.0, 200.0]):
        key = RequestKey("cpu", 1, "repeat", 1, position, str(position), position)
        lines.request_ended(make_record(key, Answer(ttft), sent=position))
    time.sleep(0.2)
    lines.ended()
    said = capsys.readouterr().err
    tokens = 3 * (DOCUMENT + QUESTION + OUTPUT) / (2 + 0.2 + (OUTPUT - 1) / 1e3)
    line = rf"kvbench: cpu repeat \(repeat 2\): 3 of 60 requests done, about \d+ s left, p50 200\.0 ms, {tokens:,.0f} tokens/s\n"
    assert re.search(line, said)
    lines.ended()
    assert "progress" not in {thread.name for thread in threading.enumerate()}


def test_a_run_writes_its_lines_on_stderr_and_none_with_quiet(tmp_path: Path, small_model: Path) -> None:
    sizes = ["--model", str(small_model), "--docs", "2", "--doc-tokens", "64", "--kv-tokens", "256", "--passes", "sequential"]

    def stderr(*words: str) -> str:
        argv = [sys.executable, "-m", "kvbench", "run", *sizes, *words]
        return subprocess.run(argv, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT}, capture_output=True, text=True, check=True).stderr

    first, second = stderr("--out", "a").splitlines()
    assert first == "kvbench: none sequential: 0 of 4 requests done"
    assert second.startswith("kvbench: cpu sequential: 2 of 4 requests done, about ")
    assert stderr("--out", "b", "--quiet") == ""


def test_the_bar_shows_arm_pass_count_and_p50_and_starts_no_thread() -> None:
    file = io.StringIO()
    bar = ProgressBar(Console(file=file, force_terminal=True, width=100, color_system=None))
    before = threading.active_count()
    bar.note("loading tiny")
    bar.started(60)
    bar.pass_started("cpu", 1, "repeat")
    for position, ttft in enumerate([100.0, 300.0, 200.0]):
        bar.request_ended(make_record(RequestKey("cpu", 1, "repeat", 1, position, str(position), position), Answer(ttft)))
    assert threading.active_count() == before
    text = file.getvalue()
    assert "loading tiny" in text
    last = text.rsplit("cpu repeat (repeat 2)", 1)[1]
    assert "3/60" in last
    assert "p50 200.0 ms" in last
    assert "tokens/s" in last
    bar.pass_started("cpu", 1, "reverse")
    assert "200.0" not in file.getvalue().rsplit("cpu reverse", 1)[1]
    bar.ended()
    bar.ended()
    assert threading.active_count() == before
