"""After the growth test the product is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbench.cli.main import main
from kvbench.experiments.readings import row_keys
from tests.growth.additions import grown, names
from tests.made import Made, cyclic

Captured = pytest.CaptureFixture[str]


def test_after_unregistering_nothing_is_left(tmp_path: Path, capsys: Captured) -> None:
    Made().write(tmp_path / "made", cyclic)

    def shown() -> list[object]:
        texts: list[object] = []
        for words in (["run", "--help"], *(["report", str(tmp_path / "made"), "--format", form] for form in ("terminal", "json", "csv"))):
            assert main(words) == 0
            texts.append(capsys.readouterr().out)
        return [*texts, names(), row_keys()]

    before = shown()
    with grown():
        assert all(one != other for one, other in zip(before, shown(), strict=True))
    assert shown() == before


def test_a_run_of_it_can_be_read_where_nobody_knows_it(tmp_path: Path, capsys: Captured) -> None:
    with grown():
        assert main(["run", "dialogue", "--runner", "simulator", "--quiet", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["run", "dialogue", "--runner", "simulator"]) == 2
    assert "EXPERIMENT: Input should be 'cyclic'" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "run")]) == 0
    text = capsys.readouterr().out
    assert "dialogue | simulator" in text
    assert "Turn by turn" not in text
    assert "2nd turn" not in text
