"""Predicted against measured: side by side by pass and by document, in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.prediction import Foreseen
from kvbench.experiments.readings import ExperimentView
from kvbench.reports.formats import markdown, terminal
from kvbench.reports.formats.csv import to_csv
from kvbench.reports.formats.json import to_json
from kvbench.runs.records import PassRecord, RequestError, RequestRecord
from kvbench.runs.run_folder import Run
from kvbench.summary.summary import Summary, summarise
from kvbench.summary.validity import reasons
from tests.made import PROMPT, Answer, Made, Script, cyclic


def predicted(record: PassRecord, exact: bool = True, docs: int = 10) -> PassRecord:
    """The pass with what the simulator foresees of the default run (``runs.cyclic`` has the same tokens)."""
    order = reversed(range(docs)) if record.pass_name == "reverse" else range(docs)
    answers = [cyclic(record.arm, record.repeat, record.pass_index, position, doc) for position, doc in enumerate(order)]
    tokens = [[answer.device, answer.host, PROMPT - (answer.device or 0) - (answer.host or 0)] for answer in answers]
    device, host, computed = (sum(part) for part in zip(*tokens, strict=True))
    sums = {"device": device, "host": host, "computed": computed}
    prediction = {"profile": "engine", **sums, "requests": tokens, "ttft_ms": [None] * docs, "rates": None, "exact": exact}
    return replace(record, prediction=prediction)


def lost(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    """The tier gives nothing to documents 2 and 3 of the repeated pass."""
    computed = (arm, index) == ("cpu", 1) and doc in (2, 3)
    return cyclic("none" if computed else arm, repeat, index, position, doc)


def run_of(path: Path, script: Script = cyclic, exact: bool = True, **made: Any) -> Run:
    return Made(edit_pass=lambda record: predicted(record, exact), **made).write(path / "run", script)


def row(summary: Summary, arm: str, name: str) -> PassRow:
    return next(row for row in summary.passes if (row.arm, row.pass_name) == (arm, name))


def foreseen(summary: Summary, arm: str, name: str) -> Foreseen:
    found = row(summary, arm, name).foreseen
    assert found is not None
    return found


def test_every_pass_and_every_request_has_its_prediction_beside_it(tmp_path: Path) -> None:
    summary = summarise(run_of(tmp_path, lost), per_document=True)
    repeat = foreseen(summary, "cpu", "repeat")
    assert (repeat.exact, repeat.device, repeat.host, repeat.computed) == (True, 0, 48_640, 1_610)
    assert (repeat.difference, repeat.differing) == ((0, -9_728, 9_728), 2)
    assert foreseen(summary, "cpu", "reverse").difference == (0, 0, 0)
    one = next(row for row in summary.documents or () if (row.arm, row.pass_label, row.document) == ("cpu", "repeat", "3"))
    assert one.foreseen is not None
    assert (one.foreseen.host, one.foreseen.difference, one.foreseen.differing) == (4864, (0, -4864, 4864), 1)


def test_repeats_are_as_one(tmp_path: Path) -> None:
    repeat = foreseen(summarise(run_of(tmp_path, lost, repeats=3)), "cpu", "repeat")
    assert (repeat.host, repeat.difference, repeat.differing) == (48_640, (0, -9_728, 9_728), 6)


def test_a_failed_request_is_on_neither_side(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        return replace(answer, host=0, error=RequestError("timeout", "no answer")) if (arm, index, doc) == ("cpu", 1, 0) else answer

    repeat = foreseen(summarise(run_of(tmp_path, script)), "cpu", "repeat")
    assert (repeat.host, repeat.difference, repeat.differing) == (9 * 4864, (0, 0, 0), 0)


def test_where_the_measurement_is_unknown_there_is_no_difference(tmp_path: Path) -> None:
    repeat = foreseen(summarise(run_of(tmp_path, lambda *_: Answer(5.0, device=None, host=None))), "cpu", "repeat")
    assert (repeat.host, repeat.difference, repeat.differing) == (48_640, None, 0)


def test_an_unfinished_pass_has_no_prediction(tmp_path: Path) -> None:
    summary = summarise(Made(edit_pass=predicted, stop_after=15).write(tmp_path / "run", cyclic))
    assert foreseen(summary, "none", "sequential").computed == 50_250
    assert row(summary, "none", "repeat").foreseen is None


def test_predicted_times_come_from_rates_fitted_to_the_runs_own_requests(tmp_path: Path) -> None:
    summary = summarise(run_of(tmp_path))
    assert summary.rates is not None
    assert summary.rates["fit"]["run"] == summary.path
    for line in summary.passes:
        assert line.foreseen is not None
        assert line.foreseen.ttft_ms == pytest.approx(line.ttft_ms.p50, rel=0.03)


def test_requests_that_overlap_tell_no_rates(tmp_path: Path) -> None:
    """Each ends a millisecond after the next was sent."""

    def edit(record: RequestRecord) -> RequestRecord:
        return replace(record, sent_s=max(record.scheduled_s - 0.001, 0.0))

    summary = summarise(run_of(tmp_path, edit=edit, exact=False))
    assert summary.rates is None
    assert foreseen(summary, "cpu", "repeat").ttft_ms is None


SIDES = """\
Predicted against measured (tokens of one repeat)
arm   pass        tokens      device    host  computed  TTFT p50
none  sequential  predicted        0       -    50,250     433.6
none  sequential  measured         0       -    50,250     431.6
none  sequential  difference       0       -         0    −0.5 %
"""


def test_where_all_agree_the_report_has_one_line(tmp_path: Path) -> None:
    summary = summarise(run_of(tmp_path))
    for text in (terminal.render(summary), markdown.render(summary)):
        words = " ".join(text.split())
        assert "Predicted by the simulator, profile engine: tokens by tier of 60 of 60 requests are as predicted." in words
        assert "Predicted against measured" not in text
        assert "Predicted TTFT" not in text


def test_where_they_differ_both_sides_and_the_requests_stand_there(tmp_path: Path) -> None:
    text = terminal.render(summarise(run_of(tmp_path, lost)))
    assert "58 of 60" in " ".join(text.split())
    assert re.search(r"^cpu +repeat +predicted +0 +48,640 +1,610 +[\d.]+$", text, re.MULTILINE)
    assert re.search(r"^cpu +repeat +measured +0 +38,912 +11,338 +20\.9$", text, re.MULTILINE)
    assert re.search(r"^cpu +repeat +difference +0 +−9,728 +\+9,728 +[+−][\d.]+ %$", text, re.MULTILINE)
    assert re.search(r"^cpu-r0-p1-2 +0 \+ 4,864 \+ 161 +0 \+ 0 \+ 5,025$", text, re.MULTILINE)
    assert "fitted to 60 requests of this run" in " ".join(text.split())
    assert max(len(line) for line in text.splitlines() if "Run folder" not in line) <= 80


def test_only_the_first_requests_that_differ_are_listed(tmp_path: Path) -> None:
    text = terminal.render(summarise(run_of(tmp_path, lambda *place: replace(cyclic(*place), device=1))))
    assert len(re.findall(r"^\w+-r0-p\d-\d ", text, re.MULTILINE)) == 10
    assert "... and 50 more (--format json has all)" in text


def test_per_document_shows_both_sides_also_where_they_agree(tmp_path: Path) -> None:
    text = terminal.render(summarise(run_of(tmp_path), per_document=True))
    assert SIDES in text
    assert re.search(r"^arm +pass +document +TTFT +device +host +computed +predicted$", text, re.MULTILINE)
    assert len(re.findall(r" same$", text, re.MULTILINE)) == 60
    differing = terminal.render(summarise(run_of(tmp_path / "other", lost), per_document=True))
    assert re.search(r"^cpu +repeat +3 +43\d\.\d +0 +0 +5,025 +0 \+ 4,864 \+ 161$", differing, re.MULTILINE)
    assert max(len(line) for line in differing.splitlines() if "Run folder" not in line) <= 80


def test_an_estimate_is_marked_and_a_difference_from_it_is_no_fault(tmp_path: Path) -> None:
    run = run_of(tmp_path, lost, exact=False)
    text = terminal.render(summarise(run))
    assert reasons(ExperimentView(run)) == []
    assert "Estimated by the simulator" in " ".join(text.split())
    assert re.search(r"^cpu +repeat +estimate +0 +48,640", text, re.MULTILINE)
    assert "Requests that differ" not in text


def test_what_was_not_predicted_is_said(tmp_path: Path) -> None:
    def edit(record: PassRecord) -> PassRecord:
        return record if record.arm == "cpu" else predicted(record)

    text = terminal.render(summarise(Made(edit_pass=edit).write(tmp_path / "run", cyclic), per_document=True))
    assert re.search(r"^cpu +repeat +not predicted +– +– +– +–$", text, re.MULTILINE)
    assert re.search(r"^cpu +repeat +measured +0 +48,640 +1,610", text, re.MULTILINE)
    assert re.search(r"^cpu +repeat +3 .* –$", text, re.MULTILINE)
    run = Made().write(tmp_path / "other", cyclic)
    unknown = replace(run, manifest=run.manifest | {"profile": None})
    assert "hits are not predicted: the cache semantics of this server are not known" in summarise(unknown).notes
    assert not any("not predicted" in note for note in summarise(run).notes)


def test_markdown_csv_and_json_carry_the_same(tmp_path: Path) -> None:
    summary = summarise(run_of(tmp_path, lost))
    assert re.search(r"^\| ?cpu +\| ?repeat +\| ?difference +\| +0 ?\| +−9,728 ?\| +\+9,728 ?\|", markdown.render(summary), re.MULTILINE)
    line = list(csv.DictReader(io.StringIO(to_csv(summary))))[4]
    assert [line[f"predicted_{name}"] for name in ("device", "host", "computed")] == ["0", "48640", "1610"]
    assert [line[f"difference_{name}"] for name in ("device", "host", "computed")] == ["0", "-9728", "9728"]
    assert (line["prediction"], line["differing_requests"]) == ("exact", "2")
    assert float(line["predicted_ttft_ms"]) == foreseen(summary, "cpu", "repeat").ttft_ms
    found = json.loads(to_json(summary))
    assert found["passes"][4]["foreseen"]["difference"] == [0, -9728, 9728]
    assert [one["request_id"] for one in found["prediction"]["differences"]] == ["cpu-r0-p1-2", "cpu-r0-p1-3"]
    assert found["rates"]["fit"]["requests"] == 60
    one = list(csv.DictReader(io.StringIO(to_csv(summarise(run_of(tmp_path / "other", lost), per_document=True)))))[43]
    assert (one["document"], one["predicted_host"], one["difference_host"], one["prediction"]) == ("3", "4864", "-4864", "exact")


def test_csv_of_a_run_without_predictions_has_the_same_columns(tmp_path: Path) -> None:
    plain = to_csv(summarise(Made().write(tmp_path / "run", cyclic))).splitlines()
    assert plain[0] == to_csv(summarise(run_of(tmp_path / "other"))).splitlines()[0]
    assert plain[1].endswith("," * 9)


def test_a_tier_that_was_foreseen_to_give_nothing_need_not_hit(tmp_path: Path) -> None:
    """As one that evicts from a watermark on does; without a prediction it must."""

    def never(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return cyclic("none", repeat, index, position, doc)

    def edit(record: PassRecord) -> PassRecord:
        return replace(predicted(replace(record, arm="none")), arm=record.arm)

    assert reasons(ExperimentView(Made(edit_pass=edit).write(tmp_path / "foreseen", never))) == []
    assert "gave nothing to pass 1 (repeat), although it must" in reasons(ExperimentView(Made().write(tmp_path / "plain", never)))[0]
