"""Whole runs against servers that were there before, the fake ones: what they measure, and when they are invalid."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kvbench.cli.main import main
from kvbench.runners.servers.counters import Scrape
from kvbench.runners.vllm import warmup
from kvbench.runners.vllm.quiesce import Quiesce
from kvbench.runs.run_folder import Run, read_run
from kvbench.testing.fake_script import Script
from kvbench.testing.fake_server import serving

POOL = Script(pool_tokens=1600, block_size=16)
TIER = replace(POOL, host_tokens=4096)
SIZES = ["--docs", "4", "--doc-tokens", "600", "--vocab", "1000", "--output-tokens", "4", "--quiet"]
Captured = pytest.CaptureFixture[str]


def attach(out: Path, scripts: dict[str, Script], options: Sequence[str] = ()) -> int:
    """The exit code of a run with a fake server for each arm."""
    with ExitStack() as stack:
        urls = [f"{arm}={stack.enter_context(serving(script)).url}" for arm, script in scripts.items()]
        words = [word for url in urls for word in ("--url", url)]
        return main(["run", "--runner", "vllm", "--tier", ",".join(scripts), *words, *SIZES, *options, "--out", str(out)])


def tokens(run: Run, arm: str) -> dict[str, tuple[int, int]]:
    """Cached tokens by pass: device, host."""
    lines = [line for line in run.requests if line["arm"] == arm]
    return {
        name: (
            sum(line["cached_tokens_device"] for line in lines if line["pass"] == name),
            sum(line["cached_tokens_host"] for line in lines if line["pass"] == name),
        )
        for name in ("sequential", "repeat", "reverse")
    }


def error_of(capsys: Captured) -> str:
    *before, err = capsys.readouterr().err.splitlines()
    assert err.startswith("kvbench: error: ")
    assert all("requests done" in line for line in before)
    return err


def test_a_pool_alone_is_measured_request_by_request_and_as_foreseen(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"none": POOL}) == 0
    run = read_run(tmp_path / "run")
    assert tokens(run, "none") == {"sequential": (0, 0), "repeat": (0, 0), "reverse": (1568, 0)}
    assert {line["attribution"] for line in run.requests} == {"counters"}
    assert "tokens by tier of 12 of 12 requests\nare as predicted" in capsys.readouterr().out


def test_reading_counters_and_awaiting_stores_is_no_part_of_the_pass(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Quiesce.read

    def slowly(quiesce: Quiesce) -> Scrape:
        time.sleep(0.1)
        return read(quiesce)

    monkeypatch.setattr(Quiesce, "read", slowly)
    assert attach(tmp_path / "run", {"none": POOL}) == 0
    run = read_run(tmp_path / "run")
    for line in run.passes:
        of_pass = [item for item in run.requests if item["pass"] == line["pass"]]
        busy = sum(item["last_token_s"] - item["sent_s"] for item in of_pass)
        assert busy <= line["wall_s"] < busy + 0.1
        assert line["quiesce_s"] > 0.3  # between four requests


def test_a_pass_time_that_holds_such_waits_is_unknown() -> None:
    folders = Path(__file__).parents[2] / "data" / "folders"  # written before quiesce_s was
    assert {line["wall_s"] for line in read_run(folders / "vllm").passes} == {None}
    assert None not in {line["wall_s"] for line in read_run(folders / "vllm-concurrency").passes}


def test_what_gateways_send_beside_chunks_is_skipped(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"none": replace(POOL, keepalives=True, usage_choices=False)}) == 0
    run = read_run(tmp_path / "run")
    assert {(line["output_tokens"], line["attribution"]) for line in run.requests} == {(4, "counters")}


def test_fields_that_a_gateway_refuses_are_left_out_and_what_is_unknown_is_said(tmp_path: Path, capsys: Captured) -> None:
    strict = replace(POOL, refuses="continuous_usage_stats,ignore_eos,cache_salt", stops_after=3)
    assert attach(tmp_path / "run", {"none": strict}) == 1
    assert "unknown field continuous_usage_stats" in error_of(capsys)
    assert attach(tmp_path / "left-out", {"none": strict}, ["--without", "continuous_usage_stats,ignore_eos,cache_salt"]) == 0
    assert {line["output_tokens"] for line in read_run(tmp_path / "left-out").requests} == {3}
    said = " ".join(capsys.readouterr().out.split())
    assert "--without ignore_eos: answers may be shorter than --output-tokens" in said
    assert "--without cache_salt: what an earlier run left of the same prompts may be found again" in said
    assert "--without continuous_usage_stats: tokens in a chunk are known only where each holds one" in said


@pytest.mark.parametrize(("faults", "lost"), [(1, 0), (2, 0), (3, 2)])
@pytest.mark.parametrize("place", [7, 9], ids=["within a pass", "at its end"])
def test_a_look_at_the_counters_that_fails_costs_tokens_at_most(
    tmp_path: Path, capsys: Captured, faults: int, lost: int, place: int
) -> None:
    script = replace(POOL, metrics_faults=faults, metrics_fault_from=place)  # the first request is the warm-up
    assert attach(tmp_path / "run", {"none": script}) == 0
    assert [line["attribution"] for line in read_run(tmp_path / "run").requests].count("usage") <= lost
    assert ("1 look at the server's counters failed" in " ".join(capsys.readouterr().out.split())) == bool(lost)


def test_a_tier_is_told_from_the_pool_by_the_counters(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"none": POOL, "cpu": TIER}) == 0
    run = read_run(tmp_path / "run")
    assert tokens(run, "cpu")["repeat"] == (0, 4 * 512)
    assert [line["prediction"] is None for line in run.passes] == [False] * 3 + [True] * 3  # nobody knows how large the tier is


def test_above_concurrency_1_only_the_pass_is_known_by_tier(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"none": POOL, "cpu": TIER}, ["--concurrency", "2"]) == 0
    run = read_run(tmp_path / "run")
    of_tier = [line for line in run.requests if line["arm"] == "cpu"]
    assert {line["attribution"] for line in of_tier} == {"usage"}
    assert {line["cached_tokens_host"] for line in of_tier} == {None}
    repeat = next(line for line in run.passes if (line["arm"], line["pass"]) == ("cpu", "repeat"))
    assert repeat["cached_tokens_host"] > 0
    assert repeat["cached_tokens_device"] + repeat["cached_tokens_host"] + repeat["computed_tokens"] == 4 * 614
    assert f"{repeat['cached_tokens_host']:,}" in capsys.readouterr().out


def test_a_trace_is_replayed_at_its_own_times(tmp_path: Path, capsys: Captured) -> None:
    lines = [{"token_ids": [number % 900 for number in range(320)], "output_tokens": 3, "timestamp": place * 0.05} for place in range(3)]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with serving(POOL) as server:
        words = ["--url", f"none={server.url}", "--tier", "none", "--vocab", "1000", "--trace", str(tmp_path / "trace.jsonl"), "--quiet"]
        assert main(["run", "trace", "--runner", "vllm", *words, "--out", str(tmp_path / "run")]) == 0
    run = read_run(tmp_path / "run")
    scheduled = [line["scheduled_s"] for line in run.requests]
    assert [round(at - scheduled[0], 6) for at in scheduled] == [0.0, 0.05, 0.1]
    assert [line["cached_tokens_device"] for line in run.requests] == [0, 304, 304]


def test_a_nonce_makes_every_run_and_repeat_new_to_the_server(tmp_path: Path, capsys: Captured) -> None:
    with serving(replace(POOL, pool_tokens=100_000)) as server:
        url = ["--url", f"none={server.url}", "--tier", "none"]
        for name in ("first", "second"):
            assert main(["run", "--runner", "vllm", *url, *SIZES, "--repeats", "2", "--out", str(tmp_path / name)]) == 0
    runs = [read_run(tmp_path / name) for name in ("first", "second")]
    assert runs[0].manifest["nonce"] != runs[1].manifest["nonce"]
    for run in runs:
        first = [line for line in run.requests if line["pass"] == "sequential"]
        assert len(first) == 8
        assert all(line["cached_tokens_device"] == 0 for line in first)


def test_a_salt_makes_every_run_of_a_trace_new_to_the_server(tmp_path: Path, capsys: Captured) -> None:
    line = json.dumps({"token_ids": list(range(320)), "output_tokens": 3})
    (tmp_path / "trace.jsonl").write_text(f"{line}\n{line}\n")
    trace = ["--trace", str(tmp_path / "trace.jsonl"), "--vocab", "1000", "--concurrency", "1", "--tier", "none", "--quiet"]
    with serving(POOL) as server:
        for name in ("first", "second"):
            url = ["--url", f"none={server.url}"]
            assert main(["run", "trace", "--runner", "vllm", *url, *trace, "--out", str(tmp_path / name)]) == 0
            assert [line["cached_tokens_device"] for line in read_run(tmp_path / name).requests] == [0, 304]


def test_a_reset_forgets_the_warm_up(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "_tokens", lambda purpose, number, length, vocab: list(range(length)))
    (tmp_path / "trace.jsonl").write_text(json.dumps({"token_ids": list(range(320)), "output_tokens": 3}))
    trace = ["--trace", str(tmp_path / "trace.jsonl"), "--vocab", "1000", "--concurrency", "1", "--tier", "none", "--quiet"]
    for name, options, cached in (("emptied", ["--allow-reset"], 0), ("warm", [], 304)):
        with serving(POOL) as server:
            url = ["--url", f"none={server.url}"]
            main(["run", "trace", "--runner", "vllm", *url, *trace, *options, "--out", str(tmp_path / name)])
        assert [line["cached_tokens_device"] for line in read_run(tmp_path / name).requests] == [cached]


def test_nothing_is_reset_unless_it_is_allowed(tmp_path: Path, capsys: Captured) -> None:
    for name, options, resets in (("kept", [], 0), ("emptied", ["--allow-reset"], 1)):
        with serving(POOL) as server:
            url = ["--url", f"none={server.url}", "--tier", "none"]
            assert main(["run", "--runner", "vllm", *url, *SIZES, *options, "--out", str(tmp_path / name)]) == 0
            assert server.resets == resets


def test_a_reset_that_only_claims_success_ends_the_run(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"none": replace(POOL, resets=False)}, ["--allow-reset"]) == 1
    assert "the cache was not reset" in error_of(capsys)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (replace(POOL, foreign_tokens=50), "requests from other clients: in pass sequential of arm none"),
        (replace(POOL, restart_after=6), "the server of arm none was restarted"),
        (replace(POOL, fault="status", fault_every=3), "requests failed (http_status)"),
        (replace(POOL, fault="error", fault_after=2, fault_every=3), "requests failed (server_error)"),
        (replace(POOL, fault="close", fault_after=2, fault_every=3), "requests failed (closed)"),
        (replace(POOL, fault="length", fault_after=2, fault_every=3), "requests failed (wrong_length)"),
        (replace(POOL, fault="end", fault_after=2, fault_every=3), "requests failed (no_done)"),
    ],
    ids=["requests from other clients", "restart", "status", "error in the stream", "closed", "short", "no DONE"],
)
def test_what_is_measured_and_not_to_be_trusted(tmp_path: Path, capsys: Captured, script: Script, reason: str) -> None:
    assert attach(tmp_path / "run", {"none": script}) == 4
    assert reason in error_of(capsys)
    run = read_run(tmp_path / "run")
    assert run.manifest["status"] == "invalid"
    assert len(run.requests) == 12


def test_a_request_that_fails_at_the_end_of_a_pass_is_no_foreign_traffic(tmp_path: Path, capsys: Captured) -> None:
    script = replace(POOL, fault="length", fault_after=2, fault_every=5)  # after the warm-up the last of the first pass, and one more
    assert attach(tmp_path / "run", {"none": script}) == 4
    error = error_of(capsys)
    assert "2 of 12 requests failed (wrong_length)" in error
    assert "requests from other clients" not in error


@pytest.mark.parametrize("concurrency", ["1", "2"])
def test_tokens_that_are_counted_twice_are_not_to_be_trusted(tmp_path: Path, capsys: Captured, concurrency: str) -> None:
    assert attach(tmp_path / "run", {"none": POOL, "cpu": replace(TIER, tier_lookups=2)}, ["--concurrency", concurrency]) == 4
    assert "pass repeat: the server's counters contradict each other" in error_of(capsys)
    again = [line for line in read_run(tmp_path / "run").requests if (line["arm"], line["pass"]) == ("cpu", "repeat")]
    assert {(line["cached_tokens_host"], line["attribution"]) for line in again} == {(None, "usage")}


@pytest.mark.parametrize("concurrency", ["1", "3"])
@pytest.mark.parametrize("fault", ["status", "error", "close", "garbage"])
def test_when_every_request_fails_the_run_ends_soon_and_keeps_them(tmp_path: Path, capsys: Captured, fault: str, concurrency: str) -> None:
    warm_up = 1 + (int(concurrency) if concurrency != "1" else 0)
    script = replace(POOL, fault=fault, fault_from=warm_up + 1)
    assert attach(tmp_path / "run", {"none": script}, ["--concurrency", concurrency, "--docs", "20"]) == 1
    assert "requests in a row failed" in error_of(capsys)
    run = read_run(tmp_path / "run")
    assert run.manifest["status"] == "interrupted"
    kinds = [line["error"]["kind"] for line in run.requests]
    assert len(kinds) == 20
    assert kinds.count("not_sent") >= 20 - 5 - int(concurrency)


def test_a_tier_that_never_answers_is_named(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"none": POOL, "cpu": replace(TIER, tier_answers=False)}) == 4
    assert "the cpu tier gave nothing in the whole run" in error_of(capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--url", "none=127.0.0.1:1"], "ARM=http://HOST:PORT is expected"),
        (["--url", "gpu=http://127.0.0.1:1"], "gpu is no arm of this run"),
        (["--url", "none=http://127.0.0.1:1", "--url", "cpu=http://127.0.0.1:1/"], "each arm needs a server of its own"),
        (["--url", "none=http://127.0.0.1:1"], "--url names no server for arm cpu"),
        (["--url", "none=http://127.0.0.1:1", "--kv-tokens", "100"], "--kv-tokens does not apply"),
        (["--url", "none=http://127.0.0.1:1", "--tier", "none", "--header", "nothing"], "--header number 1: NAME:VALUE is expected"),
        (["--url", "none=http://127.0.0.1:1", "--tier", "none", "--api-key-env", "NO_SUCH_KEY"], "the environment has no such variable"),
    ],
)
def test_wrong_use(tmp_path: Path, capsys: Captured, options: list[str], message: str) -> None:
    assert main(["run", "--runner", "vllm", *options, "--out", str(tmp_path / "run")]) == 2
    assert message in error_of(capsys)
    assert not (tmp_path / "run").exists()


def test_nobody_listens(tmp_path: Path, capsys: Captured) -> None:
    assert main(["run", "--runner", "vllm", "--url", "none=http://127.0.0.1:1", "--tier", "none", "--out", str(tmp_path / "run")]) == 1
    assert "no answer" in error_of(capsys)


def test_servers_that_differ_are_not_compared(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"none": POOL, "cpu": replace(TIER, pool_tokens=3200)}) == 2
    assert "the servers differ in their pool" in error_of(capsys)


def test_secrets_are_in_no_file(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "sesame")
    with serving(replace(POOL, api_key="sesame")) as server:
        options = ["--url", f"none={server.url}", "--tier", "none", "--api-key-env", "THE_KEY", "--header", "X-Secret: open"]
        assert main(["run", "--runner", "vllm", *options, *SIZES, "--out", str(tmp_path / "run")]) == 0
    for file in (tmp_path / "run").iterdir():
        assert "sesame" not in file.read_text()
        assert "open" not in file.read_text()
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["config"]["api_key_env"] == "THE_KEY"
