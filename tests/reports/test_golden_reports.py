"""Run folders, logs and baselines of an earlier kvbench give the reports they gave then, byte for byte (``golden.py`` has the cases)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import DATA, INDEX, REPORTS, Case, cases, differences, matplotlib_version, read_index, render, workplace

ALL = os.environ.get("KVBENCH_GOLDEN") == "all"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with workplace() as made:
        yield made


@pytest.mark.parametrize("case", [pytest.param(case, id=case.key) for case in cases() if case.quick or ALL])
def test_an_output_is_what_it_was(case: Case, folder: Path) -> None:
    index = read_index()
    if case.drawn and matplotlib_version() != index["matplotlib"]:
        pytest.skip(f"drawn with matplotlib {index['matplotlib']}, and here is {matplotlib_version()}")
    found = differences(case, render(case, folder), index)
    assert not found, "\n".join(found)


def test_every_case_is_kept_and_nothing_else_is() -> None:
    index = read_index()["cases"]
    assert sorted(index) == sorted(case.key for case in cases())
    kept = {REPORTS / name for name, line in index.items() if line["stdout"] is None}
    assert {path for path in REPORTS.rglob("*") if path.is_file()} == {*kept, INDEX}


def test_test_data_names_no_folder_of_the_machine_that_made_it() -> None:
    for path in DATA.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not [word for word in ("/work/", "/tmp/", "/root/", "/home/") if word in text], path
