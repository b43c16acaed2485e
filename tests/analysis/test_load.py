"""What load gave: every figure from known times, and the objective that requests are compared with."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from kvbench.analysis import load
from kvbench.analysis.goodput import percentiles_in_slo, share_in_slo
from kvbench.analysis.load import itl_ms, load_columns, throughput
from kvbench.config.slo import Limit, parse_slo


def request(sent: float, times: list[float], chunks: list[int] | None, failed: bool = False, prompt: int = 100) -> dict[str, Any]:
    """A request line as far as load reads it; times in seconds."""
    return {
        "sent_s": sent,
        "last_token_s": times[-1] if times else None,
        "output_tokens": None if chunks is None else sum(chunks),
        "token_times_s": times,
        "chunk_tokens": chunks,
        "ttft_ms": (times[0] - sent) * 1e3 if times else None,
        "failed": failed,
        "prompt": prompt,
        "repeat": 0,
    }


def table(*lines: dict[str, Any]) -> pd.DataFrame:
    own = {name: [line[name] for line in lines] for name in ("failed", "prompt", "repeat")}
    return pd.DataFrame({**own, "ttft_ms": pd.Series([line["ttft_ms"] for line in lines], dtype=float), **load_columns(lines)})


def test_tpot_is_the_rest_of_the_time_over_the_tokens_after_the_first() -> None:
    rows = table(request(1.0, [1.5, 1.75, 2.25], [1, 2, 1]))
    assert rows["e2el_ms"].tolist() == [1250.0]
    assert rows["tpot_ms"].tolist() == [250.0]
    assert rows["output"].tolist() == [4.0]


def test_a_request_of_one_token_has_no_tpot_and_one_without_a_token_no_latency() -> None:
    rows = table(request(0.0, [0.5], [1]), request(0.0, [], None))
    assert rows["tpot_ms"].isna().all()
    assert rows["e2el_ms"].tolist()[0] == 500.0
    assert math.isnan(rows["e2el_ms"].tolist()[1])


def test_itl_is_the_gap_before_each_token_and_zero_for_tokens_that_came_together() -> None:
    rows = table(request(0.0, [0.5, 0.75, 1.75], [2, 1, 3]), request(5.0, [5.5], [1]), request(6.0, [6.5, 6.625], [1, 1]))
    assert sorted(itl_ms(rows)) == [0.0, 0.0, 0.0, 125.0, 250.0, 1000.0]


def test_itl_leaves_out_requests_whose_chunks_nobody_counted() -> None:
    assert itl_ms(table(request(0.0, [0.5, 0.75], None))).tolist() == []


def test_throughput_counts_completed_requests_and_their_tokens() -> None:
    rows = table(request(0.0, [1.0], [3]), request(0.0, [2.0], [5]), request(0.0, [], None, failed=True))
    found = throughput(rows, 4.0, in_slo=1 / 3)
    assert (found.request, found.output, found.total) == (0.5, 2.0, 52.0)
    assert found.good == pytest.approx(0.25)


def test_throughput_is_unknown_without_a_time_or_tokens() -> None:
    rows = table(request(0.0, [1.0], None))
    assert throughput(rows, None).request is None
    assert (throughput(rows, 2.0).request, throughput(rows, 2.0).output) == (0.5, None)


def test_a_request_meets_an_objective_only_within_every_limit() -> None:
    rows = table(
        request(0.0, [0.5, 0.55], [1, 1]), request(0.0, [0.5, 0.75], [1, 1]), request(0.0, [2.5], [1]), request(0, [], None, failed=True)
    )
    assert share_in_slo(rows, parse_slo("ttft=1000,tpot=100")) == 0.25
    assert share_in_slo(rows, parse_slo("tpot=100")) == 0.5, "the TPOT of one token counts as 0"
    assert share_in_slo(rows, parse_slo("e2el=2500")) == 0.75
    assert share_in_slo(rows, parse_slo("ttft_p95=1000")) is None, "it is on no single request"
    assert share_in_slo(rows, None) is None


def test_an_unknown_time_of_a_completed_request_makes_goodput_unknown() -> None:
    line = request(0.0, [0.5, 0.6], None)
    assert share_in_slo(table(line), parse_slo("tpot=100")) is None
    assert share_in_slo(table(line), parse_slo("ttft=600")) == 1.0


@pytest.mark.parametrize(("count", "met"), [(129, None), (130, True)])
def test_a_limit_at_a_percentile_needs_enough_requests(count: int, met: bool | None) -> None:
    rows = table(*(request(0.0, [0.5], [1]) for _ in range(count)))
    assert percentiles_in_slo(rows, parse_slo("ttft_p95=500")) == {"ttft_p95": met}
    assert percentiles_in_slo(rows, parse_slo("ttft=500")) is None


def test_a_limit_at_a_percentile_is_missed_by_a_slow_tail() -> None:
    rows = table(*(request(0.0, [0.5 if number % 10 else 3.0], [1]) for number in range(200)))
    assert percentiles_in_slo(rows, parse_slo("ttft_p95=600,ttft_p50=600")) == {"ttft_p95": False, "ttft_p50": True}


def test_a_pass_pools_latencies_and_takes_the_mean_of_its_repeats_rates() -> None:
    lines = [request(0.0, [1.0, 1.1], [1, 1]), request(0.0, [1.0, 1.3], [1, 1]) | {"repeat": 1}]
    found = load.of_pass(table(*lines), [{"repeat": 0, "wall_s": 2.0}, {"repeat": 1, "wall_s": 4.0}], parse_slo("tpot=150"))
    assert (found["tpot_ms"].n, round(found["tpot_ms"].p50, 6)) == (2, 200.0)
    assert (found["request_throughput"], found["output_throughput"]) == (0.375, 0.75)
    assert (found["request_goodput"], found["slo_share"]) == (0.25, 0.5)


def test_an_objective_is_read_as_it_is_written() -> None:
    assert parse_slo("ttft=2000, tpot_p99=50.5").limits == (Limit("ttft", 2000.0), Limit("tpot", 50.5, 99))


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "is no limit"), ("ttft", "is no limit"), ("ttft=2s", "is no limit"), ("ttft=0", "is no limit"), ("itl=5", "'itl=5' is no limit"),
     ("ttft_p42=5", "is no limit"), ("ttft=1,ttft=2", "ttft is named twice")],
)  # fmt: skip
def test_what_is_no_objective_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_slo(text)
