"""People's own logs, the spread of repeats, and outliers: the same figures as numpy's on the same numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbench.analysis.logfile import parse_map, read_logs
from kvbench.analysis.summary import PassRow, Summary, summarise
from kvbench.cli.main import main
from kvbench.errors import UsageError
from runs import Answer, Made, cyclic

SOURCE_001 = Path(__file__).parent / "data" / "source_001.csv"
"""Ten requests a pass with the medians and means that source 001 prints; the single values are made up."""


def rows(summary: Summary) -> dict[tuple[str, str], PassRow]:
    return {(row.arm, row.pass_label): row for row in summary.passes}


def report(*paths: Path, names: str = "") -> Summary:
    return summarise(read_logs(paths, parse_map([names] if names else [])))


def test_the_source_table_gives_its_factors() -> None:
    summary = report(SOURCE_001)
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
        ("a,b\n1,2\n", "", "has no column ttft_ms or ttft; name it, as --map ttft=COLUMN (its columns: a, b)"),
        ("ttft\n1\n", "arm=x", "--map arm=x: "),
        ("ttft\n1\nslow\n", "", "column ttft, row 2: 'slow' is no number"),
        ("ttft\n", "", "holds no request"),
        ('{"ttft": 1}\n{"ttft":\n', "", "is neither CSV nor JSON lines"),
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


def test_a_report_is_of_a_run_or_of_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(Made().write(tmp_path / "run", cyclic).path)
    for argv in (["report"], ["report", run, "--csv", str(SOURCE_001)], ["report", run, "--map", "ttft=x"]):
        assert main(argv) == 2
    assert main(["report", run, "--per-repeat", "--per-document", "--format", "csv"]) == 2
    capsys.readouterr()
    assert main(["report", "--csv", str(SOURCE_001)]) == 0
    text = capsys.readouterr().out
    assert "11.9x" in text
    assert text.endswith(f"Log: {SOURCE_001}\n")
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
