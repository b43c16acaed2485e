"""A reading that no product code knows: what it says of its runs stands in every report."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_view import Rows, RunView
from kvbench.analysis.speedup import FirstRead
from kvbench.cli.main import main
from kvbench.config.run import RunConfig
from kvbench.drawing.layout import Style, fitting
from kvbench.experiments.experiment import Experiment, RunnerFacts
from kvbench.experiments.reading import Reading
from kvbench.experiments.readings import reading_of, readings, row_keys
from kvbench.experiments.registry import register, unregister
from kvbench.experiments.workload import Workload
from kvbench.summary.summary import Summary
from tests.made import Made, cyclic

Captured = pytest.CaptureFixture[str]


@dataclass(frozen=True, slots=True)
class Turn:
    """How many requests an arm answered."""

    arm: str
    answered: int


class TurnsReading(Reading):
    """Counts requests."""

    keys = ("turns",)

    def rows(self, view: RunView) -> Rows:
        return {"turns": tuple(Turn(arm, len(lines)) for arm, lines in view.by_arm.items())}

    def title(self, view: RunView) -> Iterator[str]:
        yield "turns of a talk"

    def reasons(self, view: RunView) -> Iterator[str]:
        yield f"{view.rows['turns'][0].answered} turns are too many"

    def notes(self, view: RunView) -> Iterator[str]:
        yield "turns are counted"

    def sentences(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterator[str]:
        yield "Both arms took the same turns."

    def limits(self, view: RunView) -> Iterator[str]:
        yield "talks of two people"

    def tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        yield "Turns by arm", fitting(["arm", "turns"], 1, lambda count: [[row.arm, count(row.answered)] for row in rows["turns"]], style)


class Turns(Experiment[RunConfig]):
    """An experiment of a test."""

    name = "turns"
    sentence = "Turns of a talk."
    example = "kvbench run turns"
    order = 99
    runners = ("engine",)
    reading = TurnsReading()
    options = RunConfig

    def make_workload(self, config: RunConfig, facts: RunnerFacts) -> Workload:
        raise NotImplementedError


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    register(Turns())
    Made(config={"experiment": "turns"}).write(tmp_path / "run", cyclic)
    yield tmp_path / "run"
    unregister("turns")


def report(folder: Path, capsys: Captured, *words: str) -> str:
    assert main(["report", str(folder), *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_what_it_says_stands_in_every_form(folder: Path, form: str, capsys: Captured) -> None:
    text = report(folder, capsys, "--format", form)
    said = ("turns of a talk", "30 turns are too many", "turns are counted", "Both arms took the same turns.", "talks of two people")
    assert [words for words in (*said, "Turns by arm") if words not in text] == []
    assert "By source" not in text


def test_its_rows_have_their_own_key_and_lines(folder: Path, capsys: Captured) -> None:
    found = json.loads(report(folder, capsys, "--format", "json"))
    assert found["turns"] == [{"arm": "none", "answered": 30}, {"arm": "cpu", "answered": 30}]
    assert (found["pressure"], found["passes"]) == ([], [])
    lines = list(csv.DictReader(StringIO(report(folder, capsys, "--format", "csv"))))
    marks = {"status": "invalid", "reasons": "30 turns are too many"}
    assert lines == [{"arm": "none", "answered": "30", **marks}, {"arm": "cpu", "answered": "30", **marks}]


def test_it_is_shown_beside_others(folder: Path, capsys: Captured) -> None:
    Made().write(folder.parent / "other", cyclic)
    text = report(folder, capsys, str(folder.parent / "other"))
    assert "Turns by arm" in text
    assert "Side by side" in text


def test_logs_and_unknown_experiments_are_read_as_tiers() -> None:
    assert reading_of("log").judges_tiers
    assert reading_of("of another version").judges_tiers
    tiers = {name for name in ("cyclic", "trace", "pressure", "fragmentation", "sharing") if reading_of(name).judges_tiers}
    assert tiers == {"cyclic", "trace"}


def test_keys_of_rows_are_told_apart_and_hide_no_field_of_a_summary() -> None:
    keys = row_keys()
    assert keys == ("pressure", "sharing", "fragmentation", "crossover")
    assert len(set(keys)) == len(keys) == sum(len(reading.keys) for reading in readings())
    assert not set(keys) & set(Summary.__dataclass_fields__)
