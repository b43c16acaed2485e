"""What ``vllm bench serve`` printed of a run of its own, figure for figure.

The log was made on a CPU by vLLM 0.32 and a tiny model: ``vllm bench serve --save-detailed --num-prompts 720 --max-concurrency 4
--random-input-len 48 --random-output-len 8 --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,99 --goodput ttft:40 tpot:12
e2el:200``; the texts of its answers are left out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.main import main

LOGS = Path(__file__).parents[1] / "data" / "logs"
LATENCIES = {"TTFT": "ttft_ms", "TPOT": "tpot_ms", "ITL": "itl_ms", "E2EL": "e2el_ms"}
STATISTICS = {"Mean": "mean", "Median": "p50", "P50": "p50", "P90": "p90", "P99": "p99"}
RATES = {
    "Request throughput (req/s)": "request_throughput",
    "Request goodput (req/s)": "request_goodput",
    "Output token throughput (tok/s)": "output_throughput",
    "Total token throughput (tok/s)": "total_token_throughput",
    "Benchmark duration (s)": "pass_s",
    "Successful requests": "answered",
    "Failed requests": "failed",
}


@pytest.fixture(scope="module")
def printed() -> dict[str, float]:
    text = (LOGS / "vllm-bench-720.txt").read_text(encoding="utf-8")
    return {name.strip(): float(value) for name, value in re.findall(r"^(.+?):\s+([\d.]+)\s*$", text, flags=re.MULTILINE)}


def reported(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert main(["report", "--csv", str(LOGS / "vllm-bench-720.json"), "--format", "json", *options]) == 0
    (row,) = json.loads(capsys.readouterr().out)["passes"]
    return row


def test_every_figure_is_the_one_that_vllm_printed(printed: dict[str, float], capsys: pytest.CaptureFixture[str]) -> None:
    row = reported(capsys, "--slo", "ttft=40,tpot=12,e2el=200")
    ours = {label: row[field] for label, field in RATES.items()}
    ours |= {f"{name} {latency} (ms)": row[field][own] for latency, field in LATENCIES.items() for name, own in STATISTICS.items()}
    assert {label: round(value, 2) for label, value in ours.items()} == {label: printed[label] for label in ours}
    assert len(ours) == 27


def test_goodput_needs_an_objective(capsys: pytest.CaptureFixture[str]) -> None:
    row = reported(capsys)
    assert (row["request_goodput"], row["slo_share"], row["slo_percentiles"]) == (None, None, None)


def test_a_percentile_of_720_requests_meets_or_misses_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    row = reported(capsys, "--slo", "ttft_p95=80,ttft_p99=118,e2el_p99=323")
    assert row["slo_percentiles"] == {"ttft_p95": False, "ttft_p99": True, "e2el_p99": False}
