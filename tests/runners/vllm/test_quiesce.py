"""What a reading of counters rests on: nothing runs, all stores have landed, caches were empty. And a request that ended is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from kvbench.cli.main import main
from kvbench.errors import RunFailed
from kvbench.runners.base import Clock, ClosedLoop, ListSource
from kvbench.runners.http.client import Client, Patience
from kvbench.runners.vllm import lmcache, quiesce, warmup
from kvbench.runners.vllm.arm_servers import ArmServers
from kvbench.runners.vllm.quiesce import Quiesce
from kvbench.runners.vllm.runner import VllmRunner
from kvbench.runners.vllm.warmup import empty
from kvbench.runs.records import PassTotals, RequestRecord
from kvbench.runs.run_folder import read_run
from kvbench.testing.fake_caches import CHUNK_TOKENS
from kvbench.testing.fake_script import MODEL, Script
from kvbench.testing.fake_server import FakeServer, serving
from tests.runners.http.test_client import requests
from tests.runners.servers.lives import MARK, all_gone, fake_python
from tests.runners.vllm.test_started_runs import CONFIG, mark

POOL = Script(pool_tokens=1600, block_size=16)
TIER = replace(POOL, pool_tokens=800, host_tokens=4096)  # of three prompts read in turn the pool keeps none until it is read again
PROMPT = 600
ALONE, TWO = ClosedLoop(1), ClosedLoop(2)
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmcache, "POLL_S", 0.002)


class Driven:
    """A fake server and the runner that drives it; ``records`` are those of its passes so far."""

    def __init__(
        self, server: FakeServer, http: httpx.Client, kept_chunks: int | None, patience_s: float, patience: Patience | None
    ) -> None:
        self.server, self.records = server, list[RequestRecord]()
        tier = server.url if server.caches.tier else None
        counters = Quiesce(http, server.url, tier, CHUNK_TOKENS, kept_chunks, patience_s)
        self._runner = VllmRunner(Client(server.url, MODEL, Clock(), patience=patience), counters, tier is not None, {}, None)

    def run(self, count: int, pace: ClosedLoop = ALONE, on_end: Callable[[RequestRecord], None] = lambda record: None) -> PassTotals:
        def ended(record: RequestRecord) -> None:
            self.records.append(record)
            on_end(record)

        return self._runner.run_pass(ListSource(requests(count, PROMPT)), pace, ended)

    def tokens(self) -> list[tuple[int | None, int | None, int | None, str | None]]:
        """Of each record: device, host, computed, and by what."""
        return [(one.cached_tokens_device, one.cached_tokens_host, one.computed_tokens, one.attribution) for one in self.records]


@contextmanager
def driving(
    script: Script,
    kept_chunks: int | None = None,
    patience_s: float = 10.0,
    hook: Callable[[FakeServer], None] = lambda server: None,
    patience: Patience | None = None,
) -> Iterator[Driven]:
    """``hook`` is called before each reading."""
    with serving(script) as server, httpx.Client(trust_env=False, event_hooks={"request": [lambda _: hook(server)]}) as http:
        yield Driven(server, http, kept_chunks, patience_s, patience)


def counted(totals: PassTotals, name: str) -> int:
    return totals.counters_after[name] - totals.counters_before[name]


def caches(totals: PassTotals) -> tuple[int | None, int | None, int | None]:
    return totals.cached_tokens_device, totals.cached_tokens_host, totals.computed_tokens


# A request that has ended is kept.


@pytest.mark.parametrize("error", [httpx.ConnectError("gone"), KeyboardInterrupt()])
def test_an_answer_is_kept_although_its_counters_cannot_be_read(error: BaseException) -> None:
    def fail(server: FakeServer) -> None:
        if server.requests == 3:
            raise error

    stopped = isinstance(error, KeyboardInterrupt)
    with driving(POOL, hook=fail) as driven:
        with pytest.raises(KeyboardInterrupt) if stopped else nullcontext():
            assert len(driven.run(5).counters_unread) == 1
        assert len(driven.server.truth) == (3 if stopped else 5)
    by = ["counters", "counters", "usage"] if stopped else ["counters", "counters", "usage", "usage", "counters"]
    assert [(record.error, record.attribution) for record in driven.records] == [(None, word) for word in by]


def test_all_are_kept_when_the_server_dies() -> None:
    with driving(replace(POOL, fault="die", fault_after=2, fault_from=3)) as driven, pytest.raises(RunFailed, match="5 requests in a row"):
        driven.run(10)
    assert [record.attribution for record in driven.records] == ["counters"] * 2 + [None] * 8
    assert [record.error and record.error.kind for record in driven.records] == [None] * 2 + ["closed"] + ["connect"] * 4 + ["not_sent"] * 3


@pytest.mark.parametrize("hangs", [True, False])
def test_a_server_that_answers_nothing_any_more_is_given_up_at_once(hangs: bool) -> None:
    def fail(server: FakeServer) -> None:
        if hangs and server.requests == 3:
            raise httpx.ReadTimeout("timed out")

    script, patience = replace(POOL, fault="stall", fault_from=3), Patience(request_s=0.1, failures=3)
    with driving(script, hook=fail, patience=patience) as driven:
        with pytest.raises(RunFailed, match="it hangs" if hangs else "3 requests in a row failed"):
            driven.run(9)
        assert driven.server.requests == (3 if hangs else 5)
    kinds = [record.error and record.error.kind for record in driven.records]
    assert kinds == [None, None, *(["timeout"] if hangs else ["timeout"] * 3 + ["not_sent"] * 4)]


# A request that failed is ours, and leaves nothing to wait for.


@pytest.mark.parametrize("count_s", [0.0, 0.05])
def test_the_last_request_of_a_pass_is_counted_in_it_although_it_failed(count_s: float) -> None:
    with driving(replace(POOL, fault="length", fault_after=2, fault_every=3, count_s=count_s)) as driven:
        first = driven.run(3)
        second = driven.run(2)
    assert (counted(first, "finished"), counted(first, "prompt_tokens")) == (3, 3 * PROMPT)
    assert second.counters_before == first.counters_after
    assert (first.faults, second.faults) == ([], [])


def test_the_request_after_one_that_failed_is_known_by_the_counters() -> None:
    with driving(replace(POOL, fault="length", fault_after=2, fault_every=2)) as driven:
        driven.run(3)
    assert [record.attribution for record in driven.records] == ["counters", "usage", "counters"]


def test_a_server_that_keeps_a_failed_request_is_not_said_to_serve_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiesce, "IDLE_S", 0.02)
    with driving(replace(POOL, fault="length", fault_after=2)) as driven:
        driven.server.counters.add({"num_requests_running": 1})
        assert driven.run(1).faults == []


@pytest.mark.parametrize("pace", [ALONE, TWO])
def test_the_chunks_of_a_failed_request_are_not_awaited(pace: ClosedLoop) -> None:
    with driving(replace(TIER, fault="status", fault_every=4), kept_chunks=16, patience_s=0.3) as driven:
        totals = driven.run(4, pace)
    assert sorted(record.error.kind if record.error else "" for record in driven.records) == ["", "", "", "http_status"]
    assert totals.faults == []


# Counters stand still before they are read.


@pytest.mark.parametrize("pace", [ALONE, TWO])
def test_counters_are_read_when_the_server_has_counted_what_it_finished(pace: ClosedLoop) -> None:
    with driving(replace(POOL, count_s=0.05)) as driven:
        totals = driven.run(3, pace)
    assert counted(totals, "finished") == 3
    assert [record.attribution for record in driven.records] == ["counters" if pace == ALONE else "usage"] * 3


def test_a_server_that_serves_others_is_waited_for_once_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[str] = []
    monkeypatch.setattr(quiesce, "IDLE_S", 0.02)
    with driving(POOL, hook=lambda server: readings.append(server.url)) as driven:
        driven.server.counters.add({"num_requests_running": 1})
        first, asked = driven.run(1), len(readings)
        second = driven.run(2)
    assert first.faults == ["the server still had requests 0.02 s after ours had ended: others use it too"]
    assert second.faults == []
    assert len(readings) - asked == 3  # one before the pass, one after each request


def test_no_request_is_sent_while_the_one_before_is_being_stored() -> None:
    moving: list[bool] = []
    with driving(replace(TIER, store_s=0.1)) as driven:
        driven.run(3, on_end=lambda _: moving.append(driven.server.lmcache_status() != driven.server.caches.status(0)))
    assert moving == [False] * 3


def test_a_pass_ends_when_its_stores_have_landed() -> None:
    with driving(replace(TIER, store_s=0.2)) as driven:
        driven.run(3, TWO)
        assert driven.server.lmcache_status() == driven.server.caches.status(0)


def test_stores_that_never_land_are_waited_for_once_and_named() -> None:
    with driving(replace(TIER, host_tokens=512), kept_chunks=16, patience_s=0.1) as driven:
        totals = driven.run(3)
    (fault,) = totals.faults
    assert "LMCache's stores did not land within 0.1 s: 2 of 4 chunks are there" in fault


class Complaining:
    """Servers that run, and whose tier finds no room."""

    def why_dead(self) -> None:
        return None

    def tier_trouble(self) -> str:
        return "Failed to batched allocate"


@pytest.mark.parametrize(("kept", "faults"), [(1, 0), (16, 1)], ids=["too small by choice", "large enough"])
def test_a_silent_tier_is_at_fault_only_where_it_is_large_enough(kept: int, faults: int) -> None:
    with driving(replace(TIER, tier_answers=False), kept_chunks=kept) as driven:
        driven._runner._servers = cast(ArmServers, Complaining())
        found = [driven.run(3).faults, driven.run(3).faults]
    assert [len(one) for one in found] == [0, faults]


# Counters that do not tell, or lie, are not believed.


def test_tokens_by_tier_are_known_where_the_counters_agree() -> None:
    with driving(TIER) as driven:
        totals = [driven.run(3), driven.run(3)]
    assert driven.tokens() == [(0, 0, 600, "counters")] * 3 + [(0, 512, 88, "counters")] * 3
    assert [caches(one) for one in totals] == [(0, 0, 1800), (0, 1536, 264)]


@pytest.mark.parametrize("pace", [ALONE, TWO])
@pytest.mark.parametrize("sources", ["", "prompt_tokens_by_source"], ids=["with sources", "without"])
def test_a_lookup_that_is_counted_twice_is_not_believed(pace: ClosedLoop, sources: str) -> None:
    with driving(replace(TIER, tier_lookups=2, hides=sources)) as driven:
        first, second = driven.run(3, pace), driven.run(3, pace)
    assert driven.tokens()[3:] == [(None, None, 88, "usage")] * 3
    assert caches(first) == (0, 0, 1800)
    assert (*caches(second), second.loaded_tokens) == (None, None, None, None)
    (fault,) = second.faults
    told = "unknown, unknown, unknown" if sources else "0, 1,536, 264"
    assert fault == (
        f"the server's counters contradict each other: device, host, computed are 0, 3,072, -1,272 by hits, {told} by prompt tokens"
    )


def test_one_counted_twice_is_found_by_the_sources_where_the_usage_says_nothing() -> None:
    with driving(replace(TIER, tier_lookups=2, says_cached=False)) as driven:
        driven.run(3)
        driven.run(3)
    assert driven.tokens()[3:] == [(None, None, None, None)] * 3


def test_one_counted_twice_is_found_by_the_usage_where_there_are_no_sources() -> None:
    script = replace(TIER, tier_lookups=2, hides="prompt_tokens_by_source")
    with serving(script) as server, httpx.Client(trust_env=False) as http:
        runner = VllmRunner(Client(server.url, MODEL, Clock()), Quiesce(http, server.url, None, CHUNK_TOKENS, None, 1.0), True, {}, None)
        records: list[RequestRecord] = []
        first, other = requests(2, 700)
        shares = replace(first, prompt=[*first.prompt[:300], *range(5000, 5400)])
        for request in (first, other, shares):
            runner.run_pass(ListSource([request]), ALONE, records.append)
    assert records[-1].computed_tokens == 700 - 256
    assert records[-1].attribution == "usage"  # 256 twice are possible in a prompt of 700


@pytest.mark.parametrize("hidden", ["external_prefix_cache_hits", "prefix_cache_hits", "num_preemptions", "prompt_tokens"])
def test_a_counter_that_the_server_does_not_have_leaves_the_tokens_unknown(hidden: str) -> None:
    with driving(replace(TIER, hides=hidden)) as driven:
        driven.run(3)
        totals = driven.run(3)
    assert driven.tokens()[3:] == [(None, None, 88, "usage")] * 3
    assert caches(totals) == (None, None, None)
    assert totals.faults == []


def test_a_request_that_was_not_alone_is_not_known_by_the_counters() -> None:
    with driving(replace(TIER, foreign_tokens=50)) as driven:
        driven.run(2)
    assert driven.tokens() == [(None, None, 600, "usage")] * 2


@pytest.mark.parametrize("pace", [ALONE, TWO])
def test_what_was_preempted_is_not_known_by_the_counters(pace: ClosedLoop) -> None:
    with driving(replace(TIER, preempt_every=2)) as driven:
        totals = driven.run(4, pace)
    by = ["counters", "usage"] * 2 if pace == ALONE else ["usage"] * 4
    assert driven.tokens() == [(0, 0, 600, "counters") if word == "counters" else (None, None, 600, "usage") for word in by]
    assert caches(totals) == (None, None, None)
    assert totals.faults == []


# Caches are empty at first.


def test_emptying_leaves_nothing_in_the_pool_nor_in_the_tier() -> None:
    with driving(TIER) as driven, httpx.Client(trust_env=False) as http:
        driven.run(4)
        empty(http, driven.server.url, driven.server.url)
        totals = driven.run(4)
    assert caches(totals) == (0, 0, 4 * PROMPT)


def test_what_a_started_server_was_warmed_up_with_is_not_found(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def tokens(purpose: str, number: int, length: int, vocab: int) -> list[int]:
        return list(range(length))

    monkeypatch.setattr(warmup, "_tokens", tokens)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    line: dict[str, Any] = {"token_ids": list(range(320)), "output_tokens": 4}
    (tmp_path / "trace.jsonl").write_text((json.dumps(line) + "\n") * 2)
    server = ["--runner", "vllm", "--vllm-python", str(fake_python(tmp_path, "fake_serving.py")), "--model", str(model), "--tier", "none"]
    trace = ["--trace", str(tmp_path / "trace.jsonl"), "--concurrency", "1", "--quiet", "--env", f"{MARK}={mark(tmp_path)}"]
    assert main(["run", "trace", *server, *trace, "--out", str(tmp_path / "run")]) == 0
    run = read_run(tmp_path / "run")
    assert run.passes[0]["counters_before"]["prompt_tokens"] == 320
    assert [line["cached_tokens_device"] > 0 for line in run.requests] == [False, True]
    assert all_gone(mark(tmp_path), 0)
