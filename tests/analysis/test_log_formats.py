"""Logs as other tools write them: the values of ``tests/data/inputs``; no unit guessed, no failure fast, no two loads pooled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvbench.analysis.logs.columns import parse_map
from kvbench.analysis.logs.logs import read_logs
from kvbench.analysis.logs.reader import LogReader
from kvbench.analysis.logs.registry import READERS
from kvbench.analysis.pass_rows import PassRow
from kvbench.cli.main import main
from kvbench.errors import UsageError
from kvbench.summary.summary import summarise

INPUTS = Path(__file__).parent.parent / "data" / "inputs"


def rows(*paths: Path, names: str = "") -> list[PassRow]:
    return list(summarise(read_logs(paths, parse_map([names] if names else []))).passes)


def row(*paths: Path, names: str = "") -> PassRow:
    found = rows(*paths, names=names)
    assert len(found) == 1
    return found[0]


def log_of(path: Path, *objects: Any) -> Path:
    path.write_text("".join(item + "\n" if isinstance(item, str) else json.dumps(item) + "\n" for item in objects), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "answered", "failed", "p50", "mean"),
    [
        ("llmperf_individual_responses.json", 10, 6, 445.0, 445.0),
        ("mrqa_none.csv", 30, 0, 1988.468, 1942.0766),
        ("mrqa_lmcache.csv", 30, 0, 301.7465, 309.4627),
        ("aiperf_profile_export.jsonl", 12, 1, 261.4, 261.4),
        ("per_request_lifecycle_metrics.json", 5, 0, 400.0, 400.0),
        ("genai_bench_D100_100.json", 20, 2, 334.212, 318.6305),
    ],
)
def test_the_values_of_each_tool(name: str, answered: int, failed: int, p50: float, mean: float) -> None:
    found = row(INPUTS / name)
    assert (found.ttft_ms.n, found.failed) == (answered, failed)
    assert (found.ttft_ms.p50, found.ttft_ms.mean) == pytest.approx((p50, mean), abs=1e-3)


def test_several_loads_of_one_file_are_passes_of_their_own() -> None:
    found = rows(INPUTS / "vllm_append.json")
    assert [(item.pass_label, item.ttft_ms.n) for item in found] == [("max_concurrency 1", 70), ("max_concurrency 64", 70)]
    assert [item.ttft_ms.p50 for item in found] == pytest.approx([104.0, 2504.0])
    assert [item.noise for item in found] == [None, None]
    assert [item.pass_label for item in rows(INPUTS / "benchmarks.json")] == ["streams 1", "streams 8"]


@pytest.mark.parametrize("name", ["azure23.csv", "burstgpt.csv", "batch.jsonl", "sharegpt.jsonl", "bailian_seconds.jsonl"])
def test_a_trace_is_no_log(name: str) -> None:
    with pytest.raises(UsageError, match="has no column ttft_ms or ttft_s; name it with its unit"):
        row(INPUTS / name)


# Units.


@pytest.mark.parametrize("kind", ["ttft,n\n1.5,1\n", '{"ttft": 1.5}'])
def test_a_bare_time_asks_for_its_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    path = log_of(tmp_path / "log", kind)
    assert main(["report", "--csv", str(path)]) == 2
    assert "column ttft does not say its unit; --map ttft=ttft:s is seconds, --map ttft=ttft:ms milliseconds" in capsys.readouterr().err
    assert row(path, names="ttft=ttft:s").ttft_ms.p50 == 1500
    assert row(path, names="ttft=ttft:ms").ttft_ms.p50 == 1.5


def test_a_mapped_time_without_a_unit_asks_too() -> None:
    with pytest.raises(UsageError, match="--map ttft=latency: its unit is not said; ttft=latency:s is seconds, ttft=latency:ms mill"):
        parse_map(["ttft=latency"])
    assert parse_map(["ttft=latency_s,pass=round", "doc=d"]) == {"ttft_s": "latency_s", "pass": "round", "doc": "d"}
    assert parse_map(["ttft=took:us"]) == {"ttft_us": "took"}


def test_the_unit_beside_a_value_is_read(tmp_path: Path) -> None:
    def aiperf(unit: str, value: float) -> dict[str, Any]:
        return {"metadata": {}, "metrics": {"time_to_first_token": {"value": value, "unit": unit}}, "error": None}

    assert row(log_of(tmp_path / "a", aiperf("ms", 250), aiperf("ms", 350))).ttft_ms.p50 == 300
    assert row(log_of(tmp_path / "b", aiperf("sec", 0.25))).ttft_ms.p50 == 250
    assert row(log_of(tmp_path / "c", aiperf("ns", 250e6))).ttft_ms.p50 == 250
    with pytest.raises(UsageError, match=r"c: time_to_first_token is in 'min', which is no unit .* \(read as aiperf's"):
        row(log_of(tmp_path / "c", aiperf("min", 1)))
    genai = {"aggregated_metrics": {}, "individual_request_metrics": [{"ttft": 250.0, "error_code": None}]}
    assert row(log_of(tmp_path / "d", genai | {"_time_unit": "ms"})).ttft_ms.p50 == 250
    assert row(log_of(tmp_path / "e", genai)).ttft_ms.p50 == 250_000
    with pytest.raises(UsageError, match="_time_unit is 'h'"):
        row(log_of(tmp_path / "f", genai | {"_time_unit": "h"}))


# Failures.


@pytest.mark.parametrize(
    ("header", "good", "bad"),
    [
        ("error_code", "", "429"),
        ("error_msg", "", "too many requests"),
        ("success", "true", "False"),
        ("is_success", "1", "0"),
        ("n", "1", "1"),
    ],
)
def test_a_failed_request_is_no_fast_one(tmp_path: Path, header: str, good: str, bad: str) -> None:
    found = row(log_of(tmp_path / "log.csv", f"ttft_s,{header}", f"0.4,{good}", f"0,{bad}", f"0.5,{good}"))
    assert (found.ttft_ms.n, found.failed, found.ttft_ms.p50) == (2, 1, 450.0)


def test_the_sense_of_a_column_can_be_turned_round(tmp_path: Path) -> None:
    path = log_of(tmp_path / "log.csv", "ttft_ms,ok", "5,yes", "6,no", "7,yes")
    assert row(path).failed == 0
    assert row(path, names="success=ok").failed == 1
    assert row(path, names="error=ok").failed == 2
    with pytest.raises(UsageError, match="column ok, row 1: 'maybe' is neither true nor false"):
        row(log_of(tmp_path / "log.csv", "ttft_ms,ok", "5,maybe"), names="success=ok")


def test_errored_requests_of_guidellm_are_failures_and_incomplete_ones_are_none(tmp_path: Path) -> None:
    requests = {
        "successful": [{"time_to_first_token_ms": 200.0, "prompt_tokens": 512, "cached_tokens": 0}],
        "incomplete": [{"time_to_first_token_ms": None}],
        "errored": [{"time_to_first_token_ms": None, "info": {"error": "refused"}}, {"time_to_first_token_ms": 1.0}],
    }
    found = row(log_of(tmp_path / "log", {"benchmarks": [{"config": {}, "requests": requests}]}))
    assert (found.ttft_ms.n, found.failed, found.ttft_ms.p50) == (1, 2, 200.0)


def test_a_log_in_which_nothing_was_streamed_is_refused(tmp_path: Path) -> None:
    unary = {"start_time": 1.0, "end_time": 2.0, "info": {"input_tokens": 5, "response_metrics": {"output_tokens": 3}}, "error": None}
    with pytest.raises(UsageError, match=r"no request has a time to first token .* answers must be streamed"):
        row(log_of(tmp_path / "log", [unary, unary]))


# Loads.


def result(ttfts: list[float], **more: Any) -> dict[str, Any]:
    return {"ttfts": ttfts, "errors": [""] * len(ttfts), "date": str(ttfts[0]), **more}


@pytest.mark.parametrize("field", ["max_concurrency", "request_rate", "model_id", "num_prompts", "my_metadata"])
def test_each_field_of_a_load_keeps_requests_apart(tmp_path: Path, field: str) -> None:
    path = log_of(tmp_path / "log", result([0.1, 0.1], **{field: "1"}), result([0.1], **{field: "1"}), result([9.0], **{field: "64"}))
    assert [(item.pass_label, item.ttft_ms.n, item.ttft_ms.p50) for item in rows(path)] == [
        (f"{field} 1", 3, 100.0),
        (f"{field} 64", 1, 9000.0),
    ]


def test_requests_of_one_load_are_repeats(tmp_path: Path) -> None:
    found = row(log_of(tmp_path / "log", result([0.1], max_concurrency=4), result([0.2], max_concurrency=4)))
    assert (found.pass_label, found.ttft_ms.n) == ("all", 2)
    assert found.noise is not None


def test_columns_of_a_load_keep_rows_apart_unless_they_are_named(tmp_path: Path) -> None:
    path = log_of(tmp_path / "log.csv", "ttft_ms,concurrency,model,pass", "5,1,a,x", "9,8,a,x")
    assert [item.pass_label for item in rows(path)] == ["x, concurrency 1", "x, concurrency 8"]
    assert [item.pass_label for item in rows(path, names="pass=concurrency")] == ["1", "8"]
    assert [(item.arm, item.pass_label) for item in rows(path, names="arm=concurrency")] == [("1", "x"), ("8", "x")]


def test_logs_at_different_paces_are_not_held_against_each_other(tmp_path: Path) -> None:
    paths = [log_of(tmp_path / f"{name}.json", result([0.1], max_concurrency=pace)) for name, pace in (("none", 1), ("cpu", 64))]
    assert [(item.arm, item.pass_label, item.speedup.p50) for item in rows(*paths)] == [
        ("none", "max_concurrency 1", 1.0),
        ("cpu", "max_concurrency 64", None),
    ]


# Cached tokens.


def test_cached_tokens_are_of_a_tier_only_where_the_log_says_which(tmp_path: Path) -> None:
    details = [{"device": 64, "host": 32, "storage": 4}, {"device": 96}, None]
    found = read_logs([log_of(tmp_path / "log", result([0.1] * 3, input_lens=[128] * 3, cached_tokens_details=details))], {})
    fields = ("cached_tokens_device", "cached_tokens_host", "computed_tokens")
    assert [tuple(line[name] for name in fields) for line in found.requests] == [(64, 36, 28), (96, 0, 32), (None, None, None)]
    requests = [{"time_to_first_token_ms": 9.0, "prompt_tokens": 128, "cached_tokens": cached} for cached in (0, 96, None)]
    path = log_of(tmp_path / "guidellm", {"benchmarks": [{"requests": {"successful": requests}}]})
    found = read_logs([path], {})
    assert [tuple(line[name] for name in fields) for line in found.requests] == [(0, 0, 128), (None, None, 32), (None, None, None)]


# Hints.


def test_a_log_where_a_run_is_expected_is_told_where_logs_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(INPUTS / "mrqa_none.csv")
    for words, said in (
        (["compare", log, str(INPUTS / "mrqa_lmcache.csv")], f"`kvbench report --csv {log} --csv FILE` shows it beside another"),
        (["compare", str(INPUTS / "vllm_append.json"), log], "neither a run folder nor a file of `kvbench baseline`"),
        (["report", log], f"a file, and not a run folder; if it is a log, `kvbench report --csv {log}` shows it"),
        (["report", "--csv", str(tmp_path)], f"if it is a run folder, `kvbench report {tmp_path}` shows it"),
    ):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_a_summary_without_requests_names_the_option_of_its_tool(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"run it with --save-result --save-detailed .sglang: --output-details"):
        row(log_of(tmp_path / "log", {"median_ttft_ms": 1.0}))


# Anything else.


def test_dots_reach_into_nested_objects(tmp_path: Path) -> None:
    path = log_of(tmp_path / "log", {"timing": {"first": 0.2}, "who": {"arm": "a"}}, {"timing": {"first": 0.4}, "who": {"arm": "b"}})
    found = rows(path, names="ttft=timing.first:s,arm=who.arm")
    assert [(item.arm, item.ttft_ms.p50) for item in found] == [("a", 200.0), ("b", 400.0)]
    aiperf = INPUTS / "aiperf_profile_export.jsonl"
    assert row(aiperf, names="ttft=metrics.request_latency.value:ms").ttft_ms.p50 == 297.5
    assert len(rows(INPUTS / "mrqa_none.csv", names="pass=question_id")) == 5


@pytest.mark.parametrize(
    "text",
    [
        '{"benchmarks": 5}',
        '{"benchmarks": [{"requests": {"successful": 3}}]}',
        '{"individual_request_metrics": [1]}',
        '{"metadata": 3, "metrics": []}',
        '{"ttfts": [1' + "0" * 400 + "]}",
        '{"_time_unit": [], "individual_request_metrics": [{"ttft": 1}]}',
        '{"a": ' * 800 + "1" + "}" * 800,
        '{"start_time": "x", "end_time": 1, "info": {"output_token_times": [3]}}',
        '{"ttfts": [1], "input_lens": [[]], "cached_tokens_details": [{"device": "x"}]}',
        "[" * 100_000,
        '{"results": [{"session_id": 1, "ttft": []}]}',
    ],
)
def test_a_broken_file_of_a_tool_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["report", "--csv", str(log_of(tmp_path / "log", text))]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_new_tool_is_a_reader_and_nothing_else(tmp_path: Path) -> None:
    READERS.register(LogReader("mine", "mine", lambda first: "mine" in first, lambda lines: ({"ttft_us": line["mine"]} for line in lines)))
    try:
        assert row(log_of(tmp_path / "log", {"mine": 5000})).ttft_ms.p50 == 5
    finally:
        READERS.unregister("mine")


def test_no_two_readers_take_one_file() -> None:
    for path in INPUTS.iterdir():
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".csv":
            first: Any = dict.fromkeys(text.split("\n")[0].split(","), "")
        else:
            first = json.loads(text) if text[0] == "[" or text.startswith("{\n") else json.loads(text.split("\n")[0])
        first = first[0] if isinstance(first, list) else first
        assert sum(reader.fits(first) for reader in READERS.all().values()) <= 1
