"""The formats: exact text where people read it, exact numbers where programs do."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from kvbench.analysis.prediction import Agreement, Difference
from kvbench.drawing import layout
from kvbench.reports import tables
from kvbench.reports.formats import markdown, terminal
from kvbench.reports.formats.csv import to_csv
from kvbench.reports.formats.json import to_json
from kvbench.runs.records import RequestError
from kvbench.summary.summary import Summary, summarise
from tests.made import Answer, Made, cyclic

GOLDEN = """\
cyclic | engine on cpu | tiny | 10 documents of 5,011 + 14 | pool 21,520
cpu tier 51,200 | working set 2.3x
arm   pass         n  TTFT p50   mean  vs none  pass s  device    host  computed
none  sequential  10     431.6  431.2     1.0x     4.4       0       -    50,250
none  repeat      10     430.7  430.8     1.0x     4.4       0       -    50,250
none  reverse     10     368.8  248.7     1.0x     2.6  21,504       -    28,746
cpu   sequential  10     441.0  440.7    0.98x     4.5       0       0    50,250
cpu   repeat      10      20.9   20.9    20.6x     0.3       0  48,640     1,610
cpu   reverse     10      20.4   14.1    18.1x     0.2  21,504  27,776       970

Load (a second of pass time; TPOT, ITL and E2EL: p50 in ms)
arm   pass        req/s  out tok/s     tok/s  TPOT  ITL   E2EL
none  sequential    2.3       18.3   11485.3   1.0  1.0  438.6
none  repeat        2.3       18.3   11496.6   1.0  1.0  437.7
none  reverse       3.9       31.3   19683.8   1.0  1.0  375.8
cpu   sequential    2.2       17.9   11242.0   1.0  1.0  448.0
cpu   repeat       35.8      286.6  180286.2   1.0  1.0   27.9
cpu   reverse      47.4      379.1  238475.1   1.0  1.0   27.4

Tail latency (ms; where there are samples enough)
arm   pass        ITL p90
none  sequential      1.0
none  repeat          1.0
none  reverse         1.0
cpu   sequential      1.0
cpu   repeat          1.0
cpu   reverse         1.0

By source (tokens: median of a request)
arm   source       n  TTFT p50   mean  device   host  computed
none  computed    25     431.1  431.3       0      -     5,025
none  partial      1     309.0  309.0   1,408      -     3,617
none  device hit   4       4.1    4.1   5,024      -         1
cpu   computed    10     441.0  440.7       0      0     5,025
cpu   host hit    16      20.9   20.9       0  4,864       161
cpu   device hit   4       4.1    4.1   5,024      0         1

A load from the cpu tier: 4,864 tokens in 3.2 ms (11.4 GiB/s); computing as many
takes 413 ms, 127.5x.

Read again in order, the cpu tier cut TTFT p50 from 431 ms to 20.9 ms, 20.6x;
cold-pass overhead: +2.2 %, run-to-run noise 0.2 %.

This run does not show:
- whether it comes out the same again: one repeat gives no interval (--repeats
  3)
- the slowest requests: a p90 needs 64 of an arm and pass, and there are 10
- load: requests ran one at a time (--concurrency, --rate)
- documents that differ in length or overlap in part: all have 5,011 tokens and
  share nothing (--overlap, --documents)
- documents that are seldom read again, or asked something else: every later
  pass reads all, with the same question (--reuse, --question vary)
- long answers: each has 8 tokens (--output-tokens)
- a restore over PCIe: device pool and host tier are both RAM here, and a
  restore is a memory copy
- answers that mean anything: the weights of tiny are random (--model)
- another machine: it ran on one (made, 2 cores)

Run folder: RUN
"""


def summary_of(path: Path, per_document: bool = False) -> Summary:
    return summarise(Made().write(path / "run", cyclic), per_document)


def test_the_terminal_report_exactly(tmp_path: Path) -> None:
    assert terminal.render(summary_of(tmp_path)).replace(str(tmp_path / "run"), "RUN") == GOLDEN


def test_document_fives_partial_hit_is_visible(tmp_path: Path) -> None:
    text = terminal.render(summary_of(tmp_path, per_document=True))
    assert re.search(r"^none  reverse     5 +309\.0   1,408      -     3,617$", text, re.MULTILINE)
    assert re.search(r"^cpu   reverse     5 +19\.9   1,408  3,456       161$", text, re.MULTILINE)


def test_markdown_is_a_table_that_github_reads(tmp_path: Path) -> None:
    lines = markdown.render(summary_of(tmp_path)).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    assert lines[start - 1] == ""
    assert lines[start] == "| arm  | pass       |  n | TTFT p50 |  mean | vs none | pass s | device |   host | computed |"
    assert re.fullmatch(r"\|( -+ \|){2}( -+: \|){8}", lines[start + 1])
    assert lines[start + 6] == "| cpu  | repeat     | 10 |     20.9 |  20.9 |   20.6x |    0.3 |      0 | 48,640 |    1,610 |"
    assert all(line.count("|") == 11 for line in lines[start : start + 8])


def test_markdown_has_a_line_a_row_however_long_a_name_is(tmp_path: Path) -> None:
    long = "a-name of many words " * 8 + "end"
    summary = summarise(Made(arms={"none": None, long: 51200}).write(tmp_path / "run", cyclic))
    table = tables.by_pass(summary, layout.MARKDOWN).splitlines()
    assert len(table) == 2 + 6
    assert table[-2].startswith(f"| {long} | repeat ")


NAME = "a|b <b>*x*</b> _y_ `z` ~s~ [l](u) \\ &lt;\nnext"
SHOWN = r"a\|b &lt;b>\*x\*&lt;/b> \_y\_ \`z\` \~s\~ [l]\(u) \\ &amp;lt; next"


def test_names_are_no_markup_in_markdown(tmp_path: Path) -> None:
    text = markdown.render(summarise(Made(arms={"none": None, NAME: 51200}).write(tmp_path / "run", cyclic), per_document=True))
    rows = [line for line in text.splitlines() if line.startswith(f"| {SHOWN} | ")]
    assert len(rows) == 3 + 3 + 3 + 3 + 30  # by pass, load, tail latency, by source, by document
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {11, 9, 8, 4}
    assert f"the {SHOWN} tier" in text
    assert f" on {SHOWN}, " in text
    assert "<b>" not in text


def test_figures_are_not_touched_by_the_escaping_of_markdown() -> None:
    cells = ["−1.0 %", "+2.5 %", "1,610", "1.5x", "–", "-", "0 + 4,864 + 161", "0.92–1.1"]
    table = layout.fitting(["x"] * 8, 0, lambda _: [cells], layout.MARKDOWN)
    assert [cell.strip() for cell in table.splitlines()[2].strip("|").split("|")] == cells


def test_the_line_behind_a_table_is_no_row_of_it_in_markdown() -> None:
    agreement = Agreement("engine", True, 20, tuple(Difference(f"r{place}", (0, 0, 1), (0, 1, 0)) for place in range(12)))
    assert tables._differing_requests(agreement, layout.MARKDOWN).endswith(" |\n\n... and 2 more (--format json has all)")


def test_terminal_and_markdown_show_the_same_cells(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, per_document=True)

    def cells(line: str) -> list[str]:
        return [cell.strip() for cell in re.split(r" {2,}|\|", line) if cell.strip()]

    rows = [cells(line) for line in markdown.render(summary).splitlines() if re.match(r"\| ?(none|cpu)", line)]
    assert rows == [cells(line) for line in terminal.render(summary).splitlines() if re.match(r"(none|cpu)  ", line)]
    assert len(rows) == 6 + 6 + 6 + 6 + 60  # by pass, load, tail latency, by source, by document


LONG = ("sequential", "sequential", "sequential", "zipf:1.2345")


@pytest.mark.parametrize("error", [None, RequestError("timeout", "no answer")])
def test_no_table_is_wider_than_80_columns_and_no_number_is_cut(tmp_path: Path, error: RequestError | None) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(12345.67, host=1_199_872 if index else 0, error=error if doc == 0 else None)

    made = Made(passes=LONG, document=1_200_000, docs=3, device_tokens=1_000_000, arms={"none": None, "cpu": 9_000_000})
    summary = summarise(made.write(tmp_path / "run", script), per_document=True)
    text = terminal.render(summary)
    table = [line for line in text.splitlines() if re.match(r" *(arm|none|cpu) ", line)]
    assert len(table) > 8 + 24
    assert max(len(line) for line in table) <= 80
    assert "12345.7" in text
    total = 1_199_872 * (3 if error is None else 2)
    assert re.search(rf"\b({total}|{total:,})\b", text) is not None
    assert "sequential#3" in text


def test_terminal_lines_fit_80_columns(tmp_path: Path) -> None:
    summary = summary_of(tmp_path / "a-folder", per_document=True)
    assert max(len(line) for line in terminal.render(summary).splitlines() if "Run folder" not in line) <= 80


def test_the_failed_column_appears_only_if_a_request_failed(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        return Answer(answer.ttft_ms, error=RequestError("timeout", "no answer")) if (arm, index, doc) == ("cpu", 1, 0) else answer

    text = terminal.render(summarise(Made().write(tmp_path / "run", script)))
    assert "failed  TTFT" not in terminal.render(summary_of(tmp_path / "well"))
    assert re.search(r"^arm +pass +n +failed +TTFT p50", text, re.MULTILINE)
    assert re.search(r"^cpu +repeat +9 +1 +20\.9", text, re.MULTILINE)
    assert "Invalid measurement:\n- 1 of 60 requests failed (timeout)" in text


def test_unknown_is_a_dash_and_never_zero(tmp_path: Path) -> None:
    run = Made().write(tmp_path / "run", lambda *_: Answer(5.0, device=None, host=None))
    text = terminal.render(summarise(run))
    assert re.search(r"^cpu   repeat +10 +5\.0 +5\.0 +1\.0x +0\.1 +– +– +–$", text, re.MULTILINE)
    assert re.search(r"^none  repeat +10 +5\.0 +5\.0 +1\.0x +0\.1 +– +- +–$", text, re.MULTILINE)
    assert re.search(r"^cpu   unknown +30 ", text, re.MULTILINE)


def test_the_header_names_the_baseline(tmp_path: Path) -> None:
    run = Made(arms={"cpu": 51200, "none": None}).write(tmp_path / "run", cyclic)
    assert "  vs cpu  " in terminal.render(summarise(run))


def test_a_name_that_looks_like_markup_is_shown_as_it_is(tmp_path: Path) -> None:
    run = Made(arms={"none": None, "[b]cpu[/b]": 51200}).write(tmp_path / "run", cyclic)
    assert "[b]cpu[/b]" in terminal.render(summarise(run))


def test_csv_has_a_line_a_pass_at_full_precision(tmp_path: Path) -> None:
    summary = summarise(Made(repeats=2).write(tmp_path / "run", cyclic))
    lines = list(csv.DictReader(io.StringIO(to_csv(summary))))
    assert len(lines) == 6
    for line, row in zip(lines, summary.passes, strict=True):
        assert (line["arm"], line["pass_label"], line["n"]) == (row.arm, row.pass_label, "20")
        assert float(line["ttft_ms_p50"]) == row.ttft_ms.p50
        assert (int(line["device"]), int(line["host"]), int(line["computed"])) == (row.device, row.host, row.computed)
        low = (row.speedup.p50_interval or (None,))[0]
        assert line["speedup_p50_low"] == ("" if low is None else repr(low))
    assert lines[0]["ttft_ms_p90"] == ""


def test_csv_per_document_has_a_line_a_request(tmp_path: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(summary_of(tmp_path, per_document=True)))))
    assert len(lines) == 60
    assert [line["device"] for line in lines if line["document"] == "5" and line["pass_label"] == "reverse"] == ["1408", "1408"]


def test_json_is_the_summary(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, per_document=True)
    found = json.loads(to_json(summary))
    assert found["format"] == "kvbench.summary/1"
    assert found["passes"][4]["ttft_ms"]["p50"] == summary.passes[4].ttft_ms.p50
    assert found["passes"][4]["ttft_ms"]["p90"] is None
    assert found["passes"][5]["host"] == 27776
    assert found["sentences"] == list(summary.sentences)
    assert len(found["documents"]) == 60
    assert json.loads(to_json(summary_of(tmp_path / "short")))["documents"] is None
