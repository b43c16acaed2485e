"""Report formats: one that is registered is a choice like the others, and help loads nothing that only rendering needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kvbench.cli.main import main
from kvbench.drawing.layout import TERMINAL
from kvbench.reports.formats.format import FORMATS, ReportFormat, RunReport, RunsReport, formats
from kvbench.reports.sections import Section, sections, sections_of_several
from tests.golden import workplace

Captured = pytest.CaptureFixture[str]
OWN = ["terminal", "markdown", "html", "csv", "json"]
RUN, OTHER = "folders/cyclic-repeats-1", "folders/cyclic-repeats-2"


def headings(parts: Iterable[Section]) -> str:
    return "".join(f"{part.kind.name.lower()}: {part.heading}\n" for part in parts if part.heading)


def one(run: RunReport) -> str:
    return headings(sections(run.summary, TERMINAL))


def several(runs: RunsReport) -> str:
    return headings(sections_of_several(runs, TERMINAL))


LINES = ReportFormat("lines", "a line a heading", 9, one, several, has_one_kind_of_line=True)


@pytest.fixture
def _registered() -> Iterator[None]:
    FORMATS.register(LINES)
    yield
    FORMATS.unregister("lines")


@pytest.fixture
def _in_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with workplace() as folder:
        monkeypatch.chdir(folder)
        yield
        monkeypatch.undo()


def said(capsys: Captured, *words: str) -> str:
    assert main(["report", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("_registered", "_in_data")
def test_a_registered_format_renders_one_run_and_several(capsys: Captured, tmp_path: Path) -> None:
    found = said(capsys, RUN, "--format", "lines").splitlines()
    assert "limits: This run does not show" in found
    assert not [line for line in found if "By repeat" in line]  # it is no page
    assert "table: By repeat (TTFT in ms)" in said(capsys, RUN, "--format", "lines", "--per-repeat").splitlines()
    beside = said(capsys, RUN, OTHER, "--format", "lines", "-o", str(tmp_path / "out"))
    assert beside == ""
    lines = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "table: Side by side (TTFT in ms; speedup over the same run's baseline)"
    assert sum(line.startswith("run: ") for line in lines) == 2
    assert "limits: This run does not show" not in lines
    assert "limits: This run does not show" in said(capsys, RUN, OTHER, "--format", "lines", "--full").splitlines()


@pytest.mark.usefixtures("_registered", "_in_data")
def test_what_a_format_cannot_show_together_is_refused_in_its_name(capsys: Captured) -> None:
    assert main(["report", RUN, "--format", "lines", "--per-document", "--per-repeat"]) == 2
    assert "--format lines has one kind of line; choose --per-document or --per-repeat" in capsys.readouterr().err


@pytest.mark.usefixtures("_in_data")
def test_a_page_shows_each_repeat_and_each_request(capsys: Captured) -> None:
    FORMATS.register(ReportFormat("page", "", 0, one, several, is_page=True))
    try:
        assert said(capsys, RUN, "--format", "page") == said(capsys, RUN, "--format", "page", "--per-document", "--per-repeat")
        assert "By repeat" in said(capsys, RUN, "--format", "page")
    finally:
        FORMATS.unregister("page")


@pytest.mark.usefixtures("_registered")
def test_help_and_the_refusal_name_what_is_registered(capsys: Captured) -> None:
    assert "csv (a line a pass), json (the whole summary) or lines (a line a heading)." in " ".join(said(capsys, "--help").split())
    assert main(["report", "x", "--format", "pdf"]) == 2
    assert "'pdf' is not one of 'terminal', 'markdown', 'html', 'csv', 'json', 'lines'." in capsys.readouterr().err
    FORMATS.unregister("lines")
    assert list(formats()) == OWN
    words = " ".join(said(capsys, "--help").split())
    assert "lines (" not in words
    assert "csv (a line a pass) or json (the whole summary). [default: terminal]" in words
    assert main(["report", "x", "--format", "lines"]) == 2
    assert "'lines' is not one of 'terminal', 'markdown', 'html', 'csv', 'json'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], ["pandas", "numpy", "jinja2", "matplotlib", "torch"]),
        ([RUN, "--format", "json"], ["jinja2", "matplotlib", "torch"]),
        ([RUN, OTHER, "--format", "markdown"], ["jinja2", "matplotlib", "torch"]),
    ],
    ids=["help", "json", "several"],
)
@pytest.mark.usefixtures("_in_data")
def test_only_what_a_format_needs_is_imported(words: list[str], heavy: list[str]) -> None:
    code = (
        "import sys; from kvbench.cli.main import main; code = main(['report', *sys.argv[1:]]); "
        f"print(sorted({set(heavy)} & set(sys.modules)), code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[] 0"
