"""Several runs in one report: the table, each run under its name, csv, json, the page, and the curve."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kvbench.cli.main import main
from kvbench.drawing.plots import standalone
from kvbench.errors import UsageError
from kvbench.reports.curve import axis_of, curve
from kvbench.runs.sweep_folder import Point, Sweep, SweepFolder
from kvbench.summary.side_by_side import OneRun, SideBySide, side_by_side
from tests.made import Answer, Made, cyclic
from tests.reports.test_html import Reader

Captured = pytest.CaptureFixture[str]
FORMATS = ["terminal", "markdown", "html", "csv", "json"]


def shared(share: float) -> Callable[..., Answer]:
    """The made run, its hits cut to this share: the rest is computed again."""

    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        hit = doc < share * 10
        return answer if hit else cyclic("none", repeat, 0, position, doc)

    return script


def made(folder: Path, reuse: float, repeats: int = 1, **config: Any) -> Path:
    Made(repeats=repeats, config={"reuse": reuse, **config}).write(folder, shared(reuse))
    return folder


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three runs with two repeats that differ in the share of documents read again."""
    parent = tmp_path_factory.mktemp("three")
    return [made(parent / f"run-{place}", reuse, 2) for place, reuse in enumerate((0.0, 0.5, 1.0))]


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of which one point was measured, one was stopped, one failed, and one has not been run."""
    parent = tmp_path_factory.mktemp("half") / "sweep"
    configs = [Made(config={"reuse": reuse}).manifest()["config"] for reuse in (0.0, 0.5, 0.75, 1.0)]
    points = tuple(Point(config["reuse"], f"reuse-{config['reuse']:g}", config) for config in configs)
    with SweepFolder.opened(parent, Sweep("reuse", points, ("kvbench", "run"))) as folder:
        made(folder.run_folder(points[0]), 0.0)
        Made(config={"reuse": 0.5}, stop_after=7).write(folder.run_folder(points[1]), cyclic, "interrupted", ["stopped by the user"])
        folder.failed(points[2], "no memory for it")
    return parent


def words(paths: list[Path]) -> list[str]:
    return ["report", *map(str, paths)]


# The label of a run.


def test_one_differing_option_is_the_label(three: list[Path]) -> None:
    side = side_by_side(three)
    assert (side.key, side.heading) == ("reuse", "reuse")
    assert [(run.name, run.label, run.options) for run in side.runs] == [
        ("run-0", "0", {"reuse": 0.0}), ("run-1", "0.5", {"reuse": 0.5}), ("run-2", "1", {"reuse": 1.0})]  # fmt: skip


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_several_differing_options_are_told_once_a_run(tmp_path: Path, format: str, capsys: Captured) -> None:
    paths = [made(tmp_path / "a", 0.0), made(tmp_path / "b", 1.0, concurrency=4, doc_tokens=None, model="a-model-of-a-long-name", note="x")]
    side = side_by_side(paths)
    assert side.key is None
    assert [run.label for run in side.runs] == ["a", "b"]
    assert main([*words(paths), "--format", format]) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if not line.startswith("Run folder: ")]
    text = " ".join(out.split())
    assert text.count("a: concurrency=1, doc-tokens=5011, reuse=0, model=not given, note=not given") == 1
    assert text.count("b: concurrency=4, doc-tokens=not given, reuse=1, model=a-model-of-a-long-name, note=x") == 1
    if format == "terminal":
        assert max(map(len, lines)) <= 80
        assert "a\n-\n" in out


def test_a_long_name_of_a_run_is_underlined_as_far_as_the_page_is_wide(tmp_path: Path, capsys: Captured) -> None:
    paths = [made(tmp_path / ("n" * 100 + end), 0.0, seed=seed) for seed, end in enumerate("ab")]
    Made(config={"reuse": 1.0, "seed": 3}).write(tmp_path / ("n" * 100 + "c"), cyclic)
    assert main(words([*paths, tmp_path / ("n" * 100 + "c")])) == 0
    dashes = [line for line in capsys.readouterr().out.splitlines() if line and not line.strip("-")]
    assert dashes == ["-" * 80] * 3


def test_runs_of_the_same_options_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = [made(tmp_path / "a", 1.0), made(tmp_path / "b", 1.0)]
    assert [run.label for run in side_by_side(paths).runs] == ["a", "b"]
    side = side_by_side([*paths, made(tmp_path / "c", 0.0)])
    assert [run.label for run in side.runs] == ["a (1)", "b (1)", "0"]


def test_folders_of_the_same_name_are_told_by_their_paths(tmp_path: Path) -> None:
    paths = [made(tmp_path / "x" / "run", 1.0), made(tmp_path / "y" / "run", 1.0)]
    assert [run.label for run in side_by_side(paths).runs] == [str(path) for path in paths]


def test_a_sweep_stands_for_its_points_done_or_not(half_done: Path) -> None:
    side = side_by_side([half_done])
    assert side.key == "reuse"
    assert [(run.label, run.summary is not None, run.missing) for run in side.runs] == [
        ("0", True, None),
        ("0.5", True, "interrupted after 7 of 60 requests: stopped by the user"),
        ("0.75", False, "no memory for it"),
        ("1", False, "not measured yet"),
    ]


def test_a_sweep_beside_another_run_is_told_by_all_that_differs(half_done: Path, tmp_path: Path) -> None:
    side = side_by_side([half_done, made(tmp_path / "other", 1.0, seed=3)])
    assert [run.label for run in side.runs][-2:] == ["reuse-1", "other"]
    assert [run.options for run in side.runs][-2:] == [{"seed": 0, "reuse": 1.0}, {"seed": 3, "reuse": 1.0}]


# Formats.


def test_the_table_has_a_row_a_run_arm_and_pass_with_intervals(three: list[Path], capsys: Captured) -> None:
    assert main(words(three)) == 0
    out = capsys.readouterr().out
    lines = out.split("\n\n")[0].splitlines()
    assert lines[1].split() == ["reuse", "arm", "pass", "n", "TTFT", "p50", "mean", "vs", "none", "95", "%", "pass", "s", "hits"]
    assert len(lines) == 2 + 3 * 6
    last = lines[-2].split()  # reuse 1, cpu, repeat
    assert last[:4] == ["1", "cpu", "repeat", "20"]
    summary = side_by_side(three).runs[2].summary
    assert summary is not None
    row = summary.passes[4]
    assert row.speedup.p50_interval is not None
    assert row.ttft_ms.p50 is not None
    assert last[4] == f"{row.ttft_ms.p50:.1f}"
    assert last[6] == f"{row.speedup.p50:.1f}x"
    assert last[7] == "–".join(f"{end:.1f}" for end in row.speedup.p50_interval)
    assert last[-2:] == ["97", "%"]
    assert max(len(line) for line in out.splitlines() if not line.startswith("Run folder: ")) <= 80


def test_each_run_stands_under_its_name_with_its_table_by_pass(three: list[Path], capsys: Captured) -> None:
    assert main(words(three)) == 0
    out = capsys.readouterr().out
    assert main(words(three[1:2])) == 0
    one = capsys.readouterr().out
    table = one.split("\n\n")[0]
    assert f"reuse=0.5\n---------\n\n{table}\n\nRun folder: {three[1]}\n" in out
    assert "By source" in one
    assert "By source" not in out


def test_full_reports_are_those_of_each_run(three: list[Path], capsys: Captured) -> None:
    for format in ("terminal", "markdown"):
        alone = []
        for path in three:
            assert main([*words([path]), "--format", format]) == 0
            alone.append(capsys.readouterr().out)
        assert main([*words(three), "--format", format, "--full"]) == 0
        out = capsys.readouterr().out
        assert all(text.rstrip("\n") in out for text in alone)


def test_limits_are_those_that_no_run_overcomes(tmp_path: Path, capsys: Captured) -> None:
    paths = [made(tmp_path / "a", 1.0), made(tmp_path / "b", 1.0, concurrency=4)]
    limits = [set(summary.limits) for _, summary in side_by_side(paths).measured]
    assert limits[0] - limits[1]
    assert main(words(paths)) == 0
    out = " ".join(capsys.readouterr().out.split())
    told = out.split("None of these runs shows:")[1]
    assert all(limit in told for limit in limits[0] & limits[1])
    assert not any(limit in told for limit in limits[0] - limits[1])


def test_another_machine_or_version_is_noted(tmp_path: Path) -> None:
    other = Made(config={"reuse": 0.0})
    manifest = other.manifest()
    manifest["environment"]["cpu"], manifest["kvbench"] = "another", "0.0.1"
    other.manifest = lambda: manifest  # type: ignore[method-assign]
    other.write(tmp_path / "b", cyclic)
    notes = side_by_side([made(tmp_path / "a", 1.0), tmp_path / "b"]).notes
    assert [note.split(":")[0] for note in notes] == ["the runs differ in machine too (cpu)", "the runs differ in software too (kvbench)"]
    same = [made(tmp_path / "c", 1.0, max_batch_tokens=512), made(tmp_path / "d", 1.0, max_batch_tokens=1024)]
    assert side_by_side(same).notes == ()  # an option is the label already


def test_csv_begins_with_the_run_and_what_it_differs_in(three: list[Path], capsys: Captured) -> None:
    assert main([*words(three), "--format", "csv"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert list(rows[0])[:4] == ["run", "reuse", "arm", "pass_name"]
    assert [(row["run"], row["reuse"]) for row in rows[::6]] == [("run-0", "0.0"), ("run-1", "0.5"), ("run-2", "1.0")]
    assert main([*words(three[2:]), "--format", "csv"]) == 0
    one = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert [{name: row[name] for name in one[0]} for row in rows[12:]] == one
    assert main([*words(three), "--format", "csv", "--per-repeat"]) == 0
    assert len(list(csv.DictReader(StringIO(capsys.readouterr().out)))) == 3 * 6 * 2


def test_a_column_of_the_table_keeps_its_name_where_an_option_has_the_same(tmp_path: Path, capsys: Captured) -> None:
    Made(arms={"none": None}).write(tmp_path / "a", cyclic)
    Made().write(tmp_path / "b", cyclic)
    assert main([*words([tmp_path / "a", tmp_path / "b"]), "--format", "csv"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert [(rows[place]["option_tier"], rows[place]["tier"]) for place in (0, -1)] == [("none", "False"), ("none,cpu", "True")]


def test_json_is_a_document_with_the_summary_of_each_run(half_done: Path, capsys: Captured) -> None:
    assert main([*words([half_done]), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["key"]) == ("kvbench.summaries/1", "reuse")
    assert [(run["run"], run["label"], run["options"], run["missing"]) for run in document["runs"]][2:] == [
        ("reuse-0.75", "0.75", {"reuse": 0.75}, "no memory for it"), ("reuse-1", "1", {"reuse": 1.0}, "not measured yet")]  # fmt: skip
    assert document["runs"][3]["summary"] is None
    assert main([*words([half_done / "reuse-0"]), "--format", "json"]) == 0
    assert document["runs"][0]["summary"] == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_shows_a_sweep_that_is_half_done(half_done: Path, tmp_path: Path, format: str) -> None:
    file = tmp_path / "report"
    assert main([*words([half_done]), "--format", format, "-o", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert "reuse" in text
    if format != "csv":
        assert "not measured yet" in text


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_shows_a_sweep_of_which_nothing_is_there(tmp_path: Path, format: str) -> None:
    points = tuple(Point(value, f"reuse-{value}", {"reuse": value}) for value in (0, 1))
    with SweepFolder.opened(tmp_path / "out", Sweep("reuse", points, ())) as folder:
        folder.run_folder(points[0]).mkdir()
    assert main([*words([tmp_path / "out"]), "--format", format, "-o", str(tmp_path / "file")]) == 0


@pytest.mark.parametrize("format", FORMATS)
def test_one_run_is_reported_as_ever(three: list[Path], tmp_path: Path, format: str) -> None:
    """A folder alone: no label, no column, no list."""
    assert main([*words(three[:1]), "--format", format, "-o", str(tmp_path / "file")]) == 0
    text = (tmp_path / "file").read_text(encoding="utf-8")
    assert "Side by side" not in text
    assert not text.startswith("run,")
    assert '"runs"' not in text


def test_a_folder_that_cannot_be_read_is_named(three: list[Path], tmp_path: Path, capsys: Captured) -> None:
    for broken, message in ((tmp_path / "none", "not a run folder"), (tmp_path, "not a run folder")):
        assert main(words([*three, broken])) == 2
        error = capsys.readouterr().err
        assert f"kvbench: error: {broken}: {message}" in error
        assert error.count("\n") == 1


def test_neither_torch_nor_matplotlib_is_needed_for_the_table(three: list[Path]) -> None:
    code = (
        f"import sys; from kvbench.cli.main import main; main({words(three)!r}); "
        "print(sorted({'torch', 'transformers', 'ray', 'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_hits_that_are_not_known_are_not_shown_as_none(tmp_path: Path, capsys: Captured) -> None:
    Made(config={"reuse": 0.0}).write(tmp_path / "a", lambda *_: Answer(5.0, device=None, host=None))
    assert main(words([tmp_path / "a", made(tmp_path / "b", 1.0)])) == 0
    rows = [line.split() for line in capsys.readouterr().out.split("\n\n")[0].splitlines()[2:]]
    assert [row[-1] for row in rows] == ["–"] * 6 + ["%"] * 6


# Notes, and runs whose figures are in doubt.


def drifting(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    """The made run on a machine that got slower from repeat to repeat."""
    answer = cyclic(arm, repeat, index, position, doc)
    return replace(answer, ttft_ms=answer.ttft_ms * (1 + repeat))


def warm(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    """The made run, its first pass not cold on the cpu arm."""
    answer = cyclic(arm, repeat, index, position, doc)
    return replace(answer, host=256) if (arm, index) == ("cpu", 0) else answer


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of three points: steady, unsteady, and one with a reason invalid."""
    parent = tmp_path_factory.mktemp("doubtful") / "sweep"
    points = tuple(Point(docs, f"docs-{docs}", Made(docs=docs, repeats=3).manifest()["config"]) for docs in (8, 9, 10))
    with SweepFolder.opened(parent, Sweep("docs", points, ("kvbench", "run"))) as folder:
        for point, script in zip(points, (cyclic, drifting, warm), strict=True):
            Made(docs=point.value, repeats=3).write(folder.run_folder(point), script)
    return parent


def test_rows_are_marked_and_notes_stand_below_the_table_by_run(doubtful: Path, capsys: Captured) -> None:
    assert main(words([doubtful])) == 0
    out = capsys.readouterr().out
    table, _, rest = out.partition("\n\n")
    labels = [" ".join(line.split("none" if "none" in line else "cpu")[0].split()) for line in table.splitlines()[2:]]
    assert labels == ["8"] * 6 + ["9 *"] * 6 + ["10 !"] * 6
    below = " ".join(rest.partition("docs=8\n------")[0].split())
    assert "! invalid measurement, * unsteady times" in below
    assert "note: docs=9: unsteady times (noise" in below
    assert "- docs=10: the first pass of arm cpu was not cold" in below
    assert "\ndocs=9 *\n" in rest
    assert "\ndocs=10 !\n" in rest
    assert "\ndocs=8\n" in rest
    assert max(len(line) for line in out.splitlines() if not line.startswith("Run folder: ")) <= 80


@pytest.mark.parametrize("format", ["markdown", "html"])
def test_notes_and_marks_stand_in_every_format_for_people(doubtful: Path, capsys: Captured, format: str) -> None:
    assert main([*words([doubtful]), "--format", format]) == 0
    text = capsys.readouterr().out
    for said in ("docs=9: unsteady times (noise", "docs=10: the first pass of arm cpu was not cold", "invalid measurement,"):
        assert said in text
    assert ("| 9 \\*" if format == "markdown" else '<th scope="row">9 *</th>') in text


def test_a_note_that_several_runs_have_is_said_once(tmp_path: Path, capsys: Captured) -> None:
    paths = [made(tmp_path / name, reuse, runner="simulator", profile="engine") for name, reuse in (("a", 0.0), ("b", 0.5))]
    assert main(words(paths)) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("this is a prediction, nothing was measured") == 1
    assert "note: every run: this is a prediction" in text
    assert "note: reuse=0: nothing is read again (--reuse 0)" in text


def test_a_full_report_has_its_own_notes_once(doubtful: Path, capsys: Captured) -> None:
    assert main([*words([doubtful]), "--full"]) == 0
    assert capsys.readouterr().out.count("the same work differed by") == 1


def test_csv_of_an_untrusted_run_says_so_in_every_line_and_on_stderr(doubtful: Path, capsys: Captured) -> None:
    for name, more in (("docs-10", []), ("docs-10", ["--per-document"]), ("docs-10", ["--per-repeat"])):
        assert main([*words([doubtful / name]), "--format", "csv", *more]) == 0
        shown = capsys.readouterr()
        for row in csv.DictReader(StringIO(shown.out)):
            assert (row["status"], row["reasons"].partition(":")[0]) == ("invalid", "the first pass of arm cpu was not cold")
        assert f"kvbench: warning: invalid measurement: {doubtful / name}: the first pass of arm cpu" in shown.err
    assert main([*words([doubtful / "docs-8"]), "--format", "csv"]) == 0
    shown = capsys.readouterr()
    assert "status" not in shown.out.splitlines()[0].split(",")
    assert shown.err == ""


def test_csv_of_several_runs_has_notes_and_status(doubtful: Path, capsys: Captured) -> None:
    assert main([*words([doubtful]), "--format", "csv"]) == 0
    shown = capsys.readouterr()
    rows = list(csv.DictReader(StringIO(shown.out)))[::6]
    assert [row["status"] for row in rows] == ["complete", "complete", "invalid"]
    assert [bool(row["reasons"]) for row in rows] == [False, False, True]
    assert "unsteady times (noise" in rows[1]["notes"]
    assert "docs=10: the first pass of arm cpu was not cold" in shown.err


def test_what_a_sweep_prints_at_its_end_has_notes_and_marks(tmp_path: Path, capsys: Captured) -> None:
    command = ["run", "--runner", "simulator", "--docs", "3", "--doc-tokens", "300", "--kv-tokens", "640", "--sweep", "reuse=0,1"]
    assert main([*command, "--quiet", "--out", str(tmp_path / "sweep")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "note: every run: this is a prediction" in text
    assert "note: reuse=0: nothing is read again" in text


def test_the_curve_marks_points_that_are_in_doubt(doubtful: Path, three: list[Path]) -> None:
    plot = curve(side_by_side([doubtful]))[0]
    for words in ("unsteady times", "invalid measurement"):
        assert f">{words}</text>" in plot.element
        assert f" ({words})" in plot.description
    assert " at 9 (unsteady times), " in plot.description
    assert " at 8, " in plot.description
    steady = curve(side_by_side(three))[0]
    assert "unsteady" not in steady.element
    assert "invalid" not in steady.element


# The page and the curve.


def test_the_page_has_the_curve_the_table_and_each_run(three: list[Path], capsys: Captured) -> None:
    assert main([*words(three), "--format", "html"]) == 0
    page = capsys.readouterr().out
    reader = Reader(page)
    assert len(reader.tags("svg")) == 2
    assert len(reader.rows) == 1 + 18 + 3 * (1 + 6)
    assert [row[:3] for row in reader.rows[1:19:6]] == [[value, "none", "sequential"] for value in ("0", "0.5", "1")]
    assert page.index("<svg") < page.index("<table")
    for text in ("reuse=0.5", str(three[1])):
        assert text in reader.text
    ids = [attributes["id"] for _, attributes in reader.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert not any(str(attributes.get(name, "#")).startswith("http") for _, attributes in reader.seen for name in ("src", "href"))


def test_names_on_the_page_are_shown_as_they_are(tmp_path: Path, capsys: Captured) -> None:
    paths = [made(tmp_path / "<script>", 1.0, model="<b>"), made(tmp_path / "b & c", 1.0, model="costs $5 or $6")]
    assert main([*words(paths), "--format", "html", "--plots", str(tmp_path / "plots")]) == 0
    reader = Reader(capsys.readouterr().out)
    assert reader.tags("script") == reader.tags("b") == []
    assert "model=<b>" in reader.text
    ElementTree.parse(tmp_path / "plots" / "curve.svg")
    assert "costs $5 or $6" in (tmp_path / "plots" / "curve.svg").read_text(encoding="utf-8")


def test_plots_of_several_runs_are_the_curve_and_the_load(three: list[Path], tmp_path: Path) -> None:
    assert main([*words(three), "--plots", str(tmp_path / "plots"), "-o", str(tmp_path / "file")]) == 0
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["curve.svg", "load.svg"]


def test_the_curve_says_its_figures_in_words(three: list[Path]) -> None:
    side = side_by_side(three)
    plot, load = curve(side)
    assert load.title == "Output throughput against latency"
    assert plot.title == "TTFT p50, speedup and hits by reuse"
    assert "; cpu, repeat: 431 ms at 0, " in plot.description
    for arm in ("none", "cpu"):
        for name in ("sequential", "repeat", "reverse"):
            assert f">{arm}, {name}</text>" in plot.element
    ElementTree.fromstring(standalone(plot.element))
    assert curve(side)[0].element == plot.element


@pytest.mark.parametrize(
    ("predicted", "title"), [(("s", "t"), "Predicted TTFT p50, "), (("s",), "TTFT p50, some predicted, "), ((), "TTFT p50, speedup ")]
)
def test_the_curve_calls_predicted_only_what_is(tmp_path: Path, predicted: tuple[str, ...], title: str) -> None:
    folders = [made(tmp_path / name, 0.5, runner="simulator" if name in predicted else "engine", profile="engine") for name in ("s", "t")]
    assert curve(side_by_side(folders))[0].title.startswith(title)


def of_values(side: SideBySide, *values: Any) -> SideBySide:
    """The same runs under these values of the option."""
    runs = [replace(run, name=str(place), label=str(value), options={"reuse": value})
            for place, (run, value) in enumerate(zip(side.runs, values, strict=True))]  # fmt: skip
    return SideBySide("reuse", tuple(runs), ())


@pytest.mark.parametrize(
    ("values", "places", "powers"),
    [
        ((0, 0.5, 1), [0.0, 0.5, 1.0], False),
        ((1, 4, 30), [1.0, 4.0, 30.0], False),
        ((31, 4, 1), [31.0, 4.0, 1.0], True),
        ((0, 1, 1000), [0.0, 1.0, 1000.0], False),
        (("auto", 1, 2), [0.0, 1.0, 2.0], False),
        ((True, False, 2), [0.0, 1.0, 2.0], False),
        ((["a"], ["a", "b"], ["b"]), [0.0, 1.0, 2.0], False),
    ],
)
def test_numbers_stand_at_their_values_on_powers_where_they_are_far_apart(
    three: list[Path], values: tuple[Any, ...], places: list[float], powers: bool
) -> None:
    side = of_values(side_by_side(three), *values)
    axis = axis_of(side)
    assert (list(axis.places.values()), axis.powers) == (places, powers)
    assert curve(side)


def test_the_speedup_of_the_baseline_over_itself_is_not_drawn(three: list[Path]) -> None:
    elements = curve(side_by_side(three))[0].element
    alone = []
    for run in side_by_side(three).runs:
        assert run.summary is not None
        alone.append(replace(run, summary=replace(run.summary, passes=run.summary.passes[:3])))
    without = curve(SideBySide("reuse", tuple(alone), ()))[0]
    assert without.title == "TTFT p50 and hits by reuse"
    assert "speedup vs none" in elements


def test_there_is_no_curve_of_one_run_or_of_unknown_figures(three: list[Path], tmp_path: Path) -> None:
    side = side_by_side(three)
    missing = tuple(OneRun(run.name, run.label, run.options, None, "not measured yet") for run in side.runs[1:])
    assert curve(SideBySide("reuse", (side.runs[0], *missing), ())) == ()
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        Made().write(path, lambda *_: Answer(5.0, device=None, host=None, error=None))
    assert [plot.title for plot in curve(side_by_side(paths))] == ["TTFT p50 and speedup by run", "Output throughput against latency"]


def test_logs_and_folders_are_not_mixed(three: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        side_by_side([tmp_path / "log.csv"])
    assert main([*words(three), "--csv", str(tmp_path / "log.csv")]) == 2
