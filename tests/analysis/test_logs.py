"""People's own logs, the spread of repeats, and outliers: the same figures as numpy's on the same numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbench.analysis.logs.columns import parse_map
from kvbench.analysis.logs.logs import read_logs
from kvbench.analysis.pass_rows import PassRow
from kvbench.cli.main import main
from kvbench.drawing.layout import TERMINAL
from kvbench.errors import UsageError
from kvbench.reports import tables
from kvbench.reports.formats import terminal
from kvbench.summary.summary import Summary, summarise
from tests.made import Answer, Made, cyclic

PUBLISHED = Path(__file__).parent.parent / "data" / "source_001.csv"
"""Ten requests a pass with the medians and means of the published measurement; the single values are made up."""


def rows(summary: Summary) -> dict[tuple[str, str], PassRow]:
    return {(row.arm, row.pass_label): row for row in summary.passes}


def report(*paths: Path, names: str = "") -> Summary:
    return summarise(read_logs(paths, parse_map([names] if names else [])))


def test_the_published_table_gives_its_factors() -> None:
    summary = report(PUBLISHED)
    found = rows(summary)
    printed = {"first": (575.5, 581.2), "again": (576.2, 575.9), "reverse": (505.4, 343.6)}
    assert all(
        (found["none", name].ttft_ms.p50, found["none", name].ttft_ms.mean) == pytest.approx(table) for name, table in printed.items()
    )
    assert found["cpu", "again"].speedup.p50 == pytest.approx(11.9, abs=0.05)
    assert found["cpu", "again"].speedup.mean == pytest.approx(11.6, abs=0.05)
    assert summary.first_reads[0].cost == pytest.approx(0.04, abs=0.005)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_statistics_are_numpys(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(5)
    values = {arm: rng.lognormal(4, 0.7, 700) for arm in ("a", "b")}
    lines = [(arm, value / 1e3) for arm in values for value in values[arm].tolist()]
    path = tmp_path / f"log.{kind}"
    if kind == "csv":
        path.write_text("config,seconds\n" + "".join(f"{arm},{value!r}\n" for arm, value in lines), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps({"config": arm, "seconds": value}) + "\n" for arm, value in lines), encoding="utf-8")
    found = rows(report(path, names="ttft_s=seconds,arm=config"))
    for arm, times in values.items():
        ttft = found[arm, "all"].ttft_ms
        expected = [np.median(times), times.mean(), times.std(ddof=1), times.min(), times.max(), *np.percentile(times, [90, 99])]
        assert [ttft.p50, ttft.mean, ttft.std, ttft.min, ttft.max, ttft.p90, ttft.p99] == pytest.approx(expected)
    assert found["b", "all"].speedup.p50 == pytest.approx(np.median(values["a"]) / np.median(values["b"]))
    assert found["b", "all"].speedup.mean == pytest.approx(values["a"].mean() / values["b"].mean())


def vllm_result(ttfts: list[float], errors: list[str]) -> dict[str, Any]:
    """What vllm bench serve 0.32 writes with --save-detailed, as far as a reader needs it."""
    count = len(ttfts)
    return {"model_id": "m", "completed": count - 1, "failed": 1, "median_ttft_ms": 1.0, "input_lens": [100] * count,
            "output_lens": [8] * count, "ttfts": ttfts, "itls": [[0.01] * 7] * count, "errors": errors}  # fmt: skip


def test_vllm_results_side_by_side(tmp_path: Path) -> None:
    """0.0 is how a failed request is written; it is a failure here, never a latency."""
    none, tier = tmp_path / "none.json", tmp_path / "lmcache.json"
    none.write_text(json.dumps(vllm_result([0.5, 0.0, 0.6, 0.7], ["", "boom", "", ""])), encoding="utf-8")
    appended = [vllm_result([0.05, 0.06, 0.0], ["", "", ""]), vllm_result([0.07, 0.08, 0.05], ["", "", ""])]
    tier.write_text("\n".join(json.dumps(result) for result in appended), encoding="utf-8")
    found = rows(report(none, tier))
    assert (found["none", "all"].failed, found["none", "all"].ttft_ms.n, found["none", "all"].ttft_ms.p50) == (1, 3, 600.0)
    assert (found["lmcache", "all"].failed, found["lmcache", "all"].ttft_ms.n) == (1, 5)
    assert found["lmcache", "all"].noise is not None
    assert found["none", "all"].device is None
    assert report(none, tier).sentences == ()  # nothing says that one pass of a log is a first read


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        ("a,b\n1,2\n", "", "has no column ttft_ms or ttft_s; name it with its unit, as --map ttft=COLUMN:ms (its columns: a, b)"),
        ("ttft_ms\n1\n", "arm=x", "--map arm=x: "),
        ("ttft_ms\n1\nslow\n", "", "column ttft_ms, row 2: 'slow' is no number"),
        ("ttft_ms\n", "", "holds no request"),
        ('{"ttft_ms": 1}\n{"ttft_ms":\n', "", "is neither CSV nor JSON lines (line 2: "),
        ('{"median_ttft_ms": 1}', "", "run it with --save-result --save-detailed"),
        ("", "", "is neither CSV nor JSON lines"),
    ],
)
def test_a_log_that_cannot_be_read_is_one_line(tmp_path: Path, text: str, names: str, words: str) -> None:
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        report(path, names=names)
    assert words in str(error.value)


@pytest.mark.parametrize("names", ["ttft", "speed=x", "ttft=", "=x"])
def test_a_wrong_map_is_named(names: str) -> None:
    with pytest.raises(UsageError, match="NAME=COLUMN is expected"):
        parse_map([names])


def test_a_time_is_named_in_one_unit() -> None:
    with pytest.raises(UsageError, match="both ttft_ms and ttft_s"):
        parse_map(["ttft=a:ms,arm=b", "ttft_s=c"])


def test_a_report_is_of_a_run_or_of_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(Made().write(tmp_path / "run", cyclic).path)
    for argv in (["report"], ["report", run, "--csv", str(PUBLISHED)], ["report", run, "--map", "ttft=x"]):
        assert main(argv) == 2
    assert main(["report", run, "--per-repeat", "--per-document", "--format", "csv"]) == 2
    capsys.readouterr()
    assert main(["report", "--csv", str(PUBLISHED)]) == 0
    text = capsys.readouterr().out
    assert "11.9x" in text
    assert text.endswith(f"Log: {PUBLISHED}\n")
    assert max(len(line) for line in text.splitlines()[:-1]) <= 80


# Spread and outliers.


def test_each_repeat_stands_by_itself_and_noise_is_their_spread(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer([100.0, 104.0, 102.0][repeat] + doc)

    summary = summarise(Made(repeats=3).write(tmp_path / "run", script), per_repeat=True)
    assert summary.repeats is not None
    assert len(summary.repeats) == 18
    assert [row.ttft_ms.p50 for row in summary.repeats[:3]] == pytest.approx([104.5, 108.5, 106.5])
    assert [row.noise for row in summary.passes] == pytest.approx([4 / 106.5] * 6)
    assert summarise(Made().write(tmp_path / "once", script)).passes[0].noise is None


def test_outliers_are_shown_and_counted(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        return replace(answer, ttft_ms=9000.0) if (arm, index, doc) == ("none", 1, 3) else answer

    summary = summarise(Made().write(tmp_path / "run", script))
    assert {(row.arm, row.pass_index): row.outliers for row in summary.passes if row.outliers} == {("none", 1): 1}
    assert any(note.startswith("outliers, all counted: none, repeat: 1 of 10, as 9,000.0 ms") for note in summary.notes)
    assert rows(summary)["none", "repeat"].ttft_ms.max == pytest.approx(9000.0)


def test_hits_among_computed_requests_are_no_outliers(tmp_path: Path) -> None:
    assert [row.outliers for row in summarise(Made(repeats=3).write(tmp_path / "run", cyclic)).passes] == [0] * 6


def test_an_interval_is_as_wide_as_repeats_differ(tmp_path: Path) -> None:
    """Pairs of one repeat agree exactly, repeats do not: resampled pairs alone would see half of the spread."""

    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer((100.0 + doc) / ([1.9, 2.0, 2.1][repeat] if arm == "cpu" else 1))

    interval = rows(summarise(Made(repeats=3).write(tmp_path / "run", script)))["cpu", "repeat"].speedup.p50_interval
    assert interval is not None
    assert interval[0] < 1.8
    assert interval[1] > 2.2


# What a log may hold.


def log_of(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text", ["ttft_ms,n\n50,3,\n60,4,\n", "ttft_ms,n,\n50,3,\n60,4,\n", "ttft_ms , n\n50,3,,\n\n60,4\n", "n,ttft_ms\n3,50\n4,60"]
)
def test_a_comma_at_the_end_moves_no_column(tmp_path: Path, text: str) -> None:
    assert rows(report(log_of(tmp_path / "log.csv", text)))["log", "all"].ttft_ms.p50 == 55


def test_names_that_stand_for_nothing_elsewhere_are_names_of_arms(tmp_path: Path) -> None:
    path = log_of(tmp_path / "log.csv", "ttft_ms,arm,error\n5,NA,\n6,null,None\n7,None,NaN\n,b,\n8,c,boom\nNA,d,\n")
    found = rows(report(path))
    assert [(arm, row.answered, row.failed) for (arm, _), row in found.items()] == [
        ("NA", 1, 0), ("null", 1, 0), ("None", 1, 0), ("b", 0, 1), ("c", 0, 1), ("d", 0, 1)]  # fmt: skip


def test_a_field_may_be_as_long_as_a_prompt(tmp_path: Path) -> None:
    path = log_of(tmp_path / "log.csv", f'ttft_ms,prompt\n5,"{"word, " * 50_000}"\n7,short\n')
    assert rows(report(path))["log", "all"].ttft_ms.p50 == 6


@pytest.mark.parametrize("header", ["prompt,device,host,computed", "prompt_tokens,cached_tokens_device,cached_tokens_host,computed_tokens"])
def test_tokens_are_found_by_both_names(tmp_path: Path, header: str) -> None:
    row = rows(report(log_of(tmp_path / "log.csv", f"ttft_ms,{header}\n5,100,20,70,10\n")))["log", "all"]
    assert (row.prompt, row.device, row.host, row.computed) == (100, 20, 70, 10)


def test_columns_of_words_are_no_tokens_unless_they_are_named(tmp_path: Path) -> None:
    path = log_of(tmp_path / "log.csv", 'ttft_ms,prompt,device,host\n5,"Hello, you",cuda:0,node-1\n6,Why?,cuda:0,node-1\n')
    row = rows(report(path))["log", "all"]
    assert (row.answered, row.prompt, row.device, row.host) == (2, None, None, None)
    with pytest.raises(UsageError, match="column host, row 1: 'node-1' is no number"):
        report(path, names="host=host")
    with pytest.raises(UsageError, match="column host, row 2: 'x' is no number"):
        report(log_of(tmp_path / "typo.csv", "ttft_ms,host\n5,3\n6,x\n"))


def test_a_warm_cache_is_no_fault_of_a_log_and_its_hits_are_hits(tmp_path: Path) -> None:
    text = "ttft_ms,arm,prompt,device,host,computed\n" + "5,a,100,0,90,10\n" * 3 + "7,a,100,32,0,68\n9,a,100,0,0,100\n8,a,,,,\n"
    summary = report(log_of(tmp_path / "log.csv", text))
    assert summary.reasons == ()
    assert {row.source: row.answered for row in summary.sources} == {"host hit": 3, "device hit": 1, "computed": 1, "unknown": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ttft_ms,n\n50,3\n60,4,5\n", ", line 3: 3 fields under a header of 2; quote a field that holds a comma"),
        ('ttft_ms,n\n5,"1\n', "is neither CSV nor JSON lines (unexpected end of data)"),
        ("ttft_ms,ttft_ms\n5,6\n", "has several columns ttft_ms"),
        ("ttft_ms\n3\ninf\n", "column ttft_ms, row 2: inf is neither 0 nor a finite number above it"),
        ('{"ttft_ms": 3}\n{"ttft_ms": Infinity}\n', "column ttft_ms, row 2: inf is neither 0 nor a finite number above it"),
        ("ttft_ms\n-5\n3\n", "column ttft_ms, row 1: -5 is neither 0 nor a finite number above it"),
        ("ttft_ms\n1e308\n1e308\n", "column ttft_ms, row 1: 1e308 is neither 0 nor a finite number above it"),
        ('{"ttfts": [0.1, 0.2], "errors": ["a"]}', "errors is a list with an item for each of ttfts"),
        ('{"ttfts": [0.1, 0.2], "input_lens": [1]}', "input_lens is a list"),
        ('{"ttfts": [0.1], "errors": 5}', "errors is a list"),
        ('{"ttfts": 5}', "ttfts is a list"),
        ('{"ttfts": [0.1, null]}', "ttfts are numbers of seconds, and here one is none"),
        ('{"ttfts": [0.1, NaN]}', "ttfts are numbers of seconds, and here one is none"),
        ('{"ttfts": [0.1, -2]}', "column ttft_s, row 2: -2 is neither 0 nor a finite number above it"),
    ],
)
def test_wrong_values_end_with_2_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    path = log_of(tmp_path / "log", text)
    assert main(["report", "--csv", str(path), "--format", "json"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("times", [[0.0] * 5, [5.0, 0.0, 0.0, 6.0, 7.0]])
def test_a_time_of_0_is_no_token_and_never_the_fastest_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], times: list[float]
) -> None:
    lines = [f"{time},{arm},{repeat}" for arm, own in (("a", [5.0] * 5), ("b", times)) for repeat in (0, 1) for time in own]
    path = log_of(tmp_path / "log.csv", "ttft_ms,arm,repeat\n" + "\n".join(lines) + "\n")
    assert main(["report", "--csv", str(path), "--format", "json"]) == 0
    captured = capsys.readouterr()
    speedup = json.loads(captured.out)["passes"][1]["speedup"]
    answered = [time for time in times if time]
    assert speedup["p50"] == (5.0 / float(np.median(answered)) if answered else None)
    assert captured.err == ""


def test_logs_of_one_name_are_arms_of_their_own_and_a_log_is_named_once(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "result.csv" for folder in ("before", "after")]
    for path, time in zip(paths, (20, 10), strict=True):
        path.parent.mkdir()
        log_of(path, f"ttft_ms\n{time}\n")
    assert [(row.arm, row.ttft_ms.n, row.speedup.p50) for row in report(*paths).passes] == [
        (str(paths[0]), 1, 1.0),
        (str(paths[1]), 1, 2.0),
    ]
    with pytest.raises(UsageError, match="is named twice"):
        report(paths[0], paths[0])


def test_a_line_ends_where_json_says(tmp_path: Path) -> None:
    path = log_of(tmp_path / "log.jsonl", '{"ttft_ms": 1, "text": "a\u2028b\u0085c"}\r\n{"ttft_ms": 3}\n')
    assert rows(report(path))["log", "all"].ttft_ms.mean == 2


@pytest.mark.parametrize(
    "text", ["ttft_ms,error\n1,False\n2,true\n", "ttft_ms,error\n1,0\n2,1\n", '{"ttft_ms":1,"error":false}\n{"ttft_ms":2,"error":true}\n']
)
def test_a_flag_of_errors_says_which_request_failed(tmp_path: Path, text: str) -> None:
    row = rows(report(log_of(tmp_path / "log", text)))["log", "all"]
    assert (row.ttft_ms.n, row.failed, row.ttft_ms.p50) == (1, 1, 1.0)


def test_a_name_moves_no_cursor(tmp_path: Path) -> None:
    shown = terminal.render(report(log_of(tmp_path / "log", 'ttft_ms,arm\n1,"\x1b[31mred\nline"\n')))
    assert "\x1b" not in shown
    assert "[31mred line" in shown


def test_a_log_is_given_no_advice_for_runs(tmp_path: Path) -> None:
    lines = [f"{time},{arm},{label}" for arm, time in (("a", 20), ("b", 11)) for label in ("first", "again") for _ in range(6)]
    summary = report(log_of(tmp_path / "log", "ttft_ms,arm,pass\n" + "\n".join(lines) + "\n"))
    assert summary.notes == ()
    assert "the first read cost −45.0 %" in summary.sentences[0]
    assert "--" not in terminal.render(summary)


def test_the_file_names_of_vllm_leave_every_figure_whole(tmp_path: Path) -> None:
    stem = "openai-infqps-concurrency16-Llama-3.1-8B-Instruct-20261130-12000"
    paths = [tmp_path / f"{stem}{number}.json" for number in (0, 1)]
    for path in paths:
        path.write_text(json.dumps({"ttfts": [0.1234, 0.0, 0.2], "errors": ["", "lost", ""]}), encoding="utf-8")
    table = tables.by_pass(report(*paths), TERMINAL)
    assert max(map(len, table.splitlines())) <= 80
    assert table.count("161.7") == 4  # p50 and mean of both
    assert table.count("1.0x") == 2
