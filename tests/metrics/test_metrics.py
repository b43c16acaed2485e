"""Metrics: what the page says of each, what thresholds accept, and one that is added shows everywhere; mostly through ``main``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.main import main
from kvbench.comparison.baseline_file import read_side
from kvbench.comparison.compare import compare
from kvbench.comparison.thresholds import parse
from kvbench.comparison.verdict import ChangeVerdict
from kvbench.errors import UsageError
from kvbench.metrics.metric import ComparedBy, Metric, PassRequests
from kvbench.metrics.registry import metrics, register, unregister
from kvbench.runs.records import RequestRecord
from tests.made import Answer, Made, cyclic
from tests.metrics import page

Captured = pytest.CaptureFixture[str]
REPEATED = Made(repeats=3)
NAMES = (
    *("ttft_p50", "ttft_mean", "speedup_p50", "speedup_mean", "device", "host", "computed", "preemptions", "failed", "device_hit_rate"),
    *("host_hit_rate", "ttft_p90", "ttft_p99", "ttft_min", "ttft_max", "ttft_std", "pass_s"),
    *("request_throughput", "output_throughput", "total_token_throughput", "request_goodput", "slo_share"),
    *(f"{latency}_{statistic}" for latency in ("tpot", "itl", "e2el") for statistic in ("p50", "mean", "p90", "p99")),
)


def range_of_ttft(one: PassRequests) -> float | None:
    ttft = one.ttft
    return None if ttft.min is None or ttft.max is None else ttft.max - ttft.min


ADDED = (
    Metric(
        name="ttft_range", unit="ms", formula="greatest − least TTFT", header="range", worse="higher", measure=range_of_ttft,
        compared=ComparedBy.RATIO, words=("wider", "narrower"),
    ),
    Metric(
        name="prompt_mean", unit="tokens", formula="prompt tokens ÷ requests", header="mean prompt", worse=None,
        measure=lambda one: one.rows["prompt"].mean(), compared=ComparedBy.EXACT,
    ),
    Metric(
        name="pass_name", unit="", formula="a metric that is called as a column is", header="last", worse="lower",
        measure=lambda one: one.rows["position"].max(),
    ),
)  # fmt: skip


@pytest.fixture
def added() -> Iterator[None]:
    for metric in ADDED:
        register(metric)
    yield
    for metric in ADDED:
        unregister(metric.name)


def wider(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    """Some requests take longer, more so from repeat to repeat, and one more the longer the prompt is."""
    answer = cyclic(arm, repeat, index, position, doc)
    return replace(answer, ttft_ms=answer.ttft_ms * (2 + repeat / 100) if position == 3 else answer.ttft_ms)


def report(path: Path, kind: str, capsys: Captured) -> str:
    capsys.readouterr()
    assert main(["report", str(path), "--format", kind]) == 0
    return capsys.readouterr().out


def test_the_page_says_of_each_metric_what_the_registry_does() -> None:
    assert page.written() == page.table(), "python -m tests.metrics.page writes it"
    for metric in metrics().values():
        line = next(line for line in page.written().splitlines() if line.startswith(f"| `{metric.name}` "))
        assert metric.formula in line
        assert (metric.unit or "count") in line


def test_thresholds_accept_exactly_the_metrics_in_their_order() -> None:
    assert tuple(metrics()) == NAMES
    assert [parse(f"{name}[cpu,repeat] > 0.5").metric.name for name in NAMES] == list(NAMES)
    with pytest.raises(UsageError) as error:
        parse("ttft_range[cpu,repeat] > 1")
    assert f"no figure is called ttft_range; there are {', '.join(NAMES)} (as in" in str(error.value)


@pytest.mark.usefixtures("added")
def test_an_added_metric_is_in_every_table_of_a_run(tmp_path: Path, capsys: Captured) -> None:
    REPEATED.write(tmp_path / "run", wider)
    texts = {kind: report(tmp_path / "run", kind, capsys) for kind in ("terminal", "markdown", "html", "json", "csv")}
    header = next(line for line in texts["markdown"].splitlines() if line.startswith("| arm"))
    assert [cell.strip() for cell in header.split("|")][-6:-1] == ["host", "computed", "range", "mean prompt", "last"]
    for kind in ("terminal", "markdown", "html"):
        assert "5,025.0" in texts[kind]
    assert "range</th>" in texts["html"]
    assert max(map(len, texts["terminal"].replace(str(tmp_path), "").splitlines())) <= 80
    rows = json.loads(texts["json"])["passes"]
    assert list(rows[0])[-1] == "metrics"
    assert rows[0]["metrics"]["prompt_mean"] == 5025
    lines = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert list(lines[0])[-3:] == ["ttft_range", "prompt_mean", "metric_pass_name"]
    assert (lines[0]["pass_name"], float(lines[0]["metric_pass_name"])) == ("sequential", 9)
    assert [float(line["ttft_range"]) for line in lines] == [row["metrics"]["ttft_range"] for row in rows]


@pytest.mark.usefixtures("added")
def test_an_added_metric_is_compared_and_gated(tmp_path: Path, capsys: Captured) -> None:
    for name, script in (("base", cyclic), ("new", wider)):
        REPEATED.write(tmp_path / name, script)
    assert main(["baseline", str(tmp_path / "base"), "-o", str(tmp_path / "base.json")]) == 0
    found = compare(tmp_path / "base", str(tmp_path / "new"))
    assert compare(tmp_path / "base.json", read_side(tmp_path / "new")).lines == found.lines
    verdicts = {
        (item.metric.name, item.word) for item in found.lines if item.metric in ADDED and (item.arm, item.pass_label) == ("cpu", "repeat")
    }
    assert verdicts == {("ttft_range", "wider"), ("prompt_mean", "same")}
    assert "ttft_range" in {item.metric.name for item in found.regressions}
    back = compare(tmp_path / "new", tmp_path / "base")
    assert "narrower" in {item.word for item in back.lines if item.metric is ADDED[0]}
    arguments = ["compare", str(tmp_path / "base.json"), str(tmp_path / "new"), "--fail-on", "ttft_range[cpu,repeat] > +50%"]
    for kind, words in (
        ("terminal", "Other metrics: 6 figures"), ("markdown", "| range (ms) |"), ("json", '"figure": "prompt_mean"'),
            ("github", "mean prompt"),
        ("junit", 'name="--fail-on ttft_range[cpu,repeat] &gt; +50%"'),
    ):  # fmt: skip
        capsys.readouterr()
        assert main([*arguments, "--format", kind]) == 3
        shown = capsys.readouterr()
        assert words in shown.out or kind == "github"
        assert "threshold breached: ttft_range[cpu,repeat] > +50% (cpu, repeat: " in shown.err


@pytest.mark.usefixtures("added")
def test_a_change_that_is_neither_worse_nor_better_is_a_change(tmp_path: Path) -> None:
    def one_more(record: RequestRecord) -> RequestRecord:
        return replace(record, prompt_tokens=(record.prompt_tokens or 0) + 1, computed_tokens=(record.computed_tokens or 0) + 1)

    longer = replace(REPEATED, edit=one_more)
    found = compare(REPEATED.write(tmp_path / "base", cyclic), longer.write(tmp_path / "new", cyclic))
    lines = [item for item in found.lines if item.metric.name == "prompt_mean"]
    assert {(item.verdict, item.word) for item in lines} == {(ChangeVerdict.MOVED, "changed")}
    assert {item.metric.name for item in found.regressions} == {"computed"}  # the token more is computed: that alone is worse


def test_an_added_metric_leaves_nothing_behind(tmp_path: Path, capsys: Captured, request: pytest.FixtureRequest) -> None:
    REPEATED.write(tmp_path / "run", wider)
    kinds = ("terminal", "json", "csv")

    def shown() -> list[str]:
        assert main(["baseline", str(tmp_path / "run"), "-o", str(tmp_path / "base.json")]) == 0
        return [*(report(tmp_path / "run", kind, capsys) for kind in kinds), (tmp_path / "base.json").read_text(encoding="utf-8")]

    before = shown()
    assert not any("metrics" in row for row in json.loads(before[1])["passes"])
    assert not any(ADDED[0].name in repeat["metrics"] for cell in json.loads(before[3])["cells"] for repeat in cell["repeats"])
    register(ADDED[0])
    try:
        assert all(one != other for one, other in zip(before, shown(), strict=True))
        assert compare(tmp_path / "base.json", tmp_path / "run").regressions == ()
    finally:
        unregister(ADDED[0].name)
    assert compare(tmp_path / "base.json", tmp_path / "run").lines  # a metric that nobody knows any more is passed over
    assert shown() == before


@pytest.mark.parametrize(
    "change", [{"name": "ttft_p50"}, {"name": "per cent"}, {"measure": None}, {"row": "pass_s"}], ids=["taken", "name", "measure", "row"]
)
def test_a_metric_that_could_not_work_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="metric"):
        register(replace(ADDED[0], **change))
    assert tuple(metrics()) == NAMES
