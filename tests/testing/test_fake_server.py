"""The fake server: it does what its script says, counts what it does, and answers as the real ones do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kvbench.runners.base import DeviceCapacity
from kvbench.runners.servers.counters import difference
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.vllm.lmcache import await_stores, read_status
from kvbench.testing.fake_counters import COUNTERS, GAUGES, LABELLED
from kvbench.testing.fake_script import FAULTS, Script
from kvbench.testing.fake_server import FakeServer, main, serving
from tests.runners.vllm.refused import BEYOND, CASES, NO_ROUTE, SCRIPT, Case, send

DATA = Path(__file__).parent.parent / "runners" / "vllm" / "data"


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=10) as client:
        yield client


def complete(http: httpx.Client, server: FakeServer, prompt: list[int], tokens: int = 4, **more: Any) -> httpx.Response:
    body = {"model": "fake", "prompt": prompt, "max_tokens": tokens, **more}
    return http.post(f"{server.url}/v1/completions", json=body, headers={"X-Request-Id": more.get("user", "r0")})


def samples(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_its_metrics_are_among_those_of_a_real_server_and_labelled_alike(http: httpx.Client) -> None:
    real = samples((DATA / "metrics-vllm-0.32.0.txt").read_text(encoding="utf-8"))
    labels = {sample.name: set(sample.labels) for sample in real}
    values = {(sample.name, sample.labels.get("source"), sample.labels.get("finished_reason")) for sample in real}
    with serving(Script(pool_tokens=64)) as server:
        own = samples(http.get(f"{server.url}/metrics").text)
    assert {sample.name for sample in own} <= set(labels)
    for sample in own:
        if sample.name != "vllm:cache_config_info":
            assert set(sample.labels) == labels[sample.name]
        assert set(sample.labels) <= labels[sample.name]
        assert (sample.name, sample.labels.get("source"), sample.labels.get("finished_reason")) in values
    assert len(own) >= len(COUNTERS) + len(GAUGES) + sum(len(values) for _, values in LABELLED.values())


def test_it_counts_what_it_serves(http: httpx.Client) -> None:
    with serving(Script(pool_tokens=1600, block_size=16, host_tokens=1024)) as server:
        before = KIND.scrape(http, server.url)
        for number in range(2):
            complete(http, server, list(range(40)), 5, user=f"r{number}", stream=True)
        after = KIND.scrape(http, server.url)
    grown = difference(before.counters, after.counters)
    assert (grown["prefix_queries"], grown["prefix_hits"], grown["prompt_tokens"], grown["cached_tokens"]) == (80, 32, 80, 32)
    assert (grown["external_queries"], grown["external_hits"]) == (48, 0)
    assert grown["prompt_tokens_computed"] + grown["prompt_tokens_device"] + grown["prompt_tokens_external"] == 80
    assert (grown["output_tokens"], grown["finished"], grown["finished_length"], grown["preemptions"]) == (10, 2, 2, 0)
    assert (after.gauges["running"], after.capacity, after.started) == (0, DeviceCapacity(1600, 16), before.started)


def test_a_cache_without_a_tier_asks_none(http: httpx.Client) -> None:
    with serving(Script(pool_tokens=1600)) as server:
        complete(http, server, list(range(40)))
        assert KIND.scrape(http, server.url).counters["external_queries"] == 0


def test_the_known_values_of_a_real_server_with_lmcache(http: httpx.Client) -> None:
    """Ten documents of 5,003 tokens, in order, again, and in reverse; as measured with vLLM 0.32 and LMCache 0.5.6."""
    documents = [[doc * 5003 + place for place in range(5003)] for doc in range(10)]
    grown = []
    with serving(Script(pool_tokens=672 * 32, block_size=32, host_tokens=80_000)) as server:
        before = KIND.scrape(http, server.url).counters
        for order in (range(10), range(10), reversed(range(10))):
            for doc in order:
                complete(http, server, documents[doc], 8)
            after = KIND.scrape(http, server.url).counters
            grown.append(difference(before, after))
            before = after
        assert read_status(http, server.url).chunks == 190
    assert [one["prefix_hits"] for one in grown] == [0, 0, 21_440]
    assert [one["external_hits"] for one in grown] == [0, 48_640, 27_712]
    assert grown[2]["external_queries"] == 28_590


def test_a_tier_that_never_answers_is_asked_and_gives_nothing(http: httpx.Client) -> None:
    with serving(Script(pool_tokens=320, host_tokens=8192, tier_answers=False)) as server:
        for prompt in (list(range(300)), list(range(1000, 1300)), list(range(300))):
            complete(http, server, prompt)
        counters = KIND.scrape(http, server.url).counters
        assert read_status(http, server.url).chunks == 2
    assert (counters["external_queries"], counters["external_hits"]) == (900, 0)


def test_a_reset_clears_the_pool_and_leaves_the_tier(http: httpx.Client) -> None:
    with serving(Script(pool_tokens=8000, host_tokens=8192)) as server:

        def hits() -> tuple[int, int]:
            before = KIND.scrape(http, server.url).counters
            complete(http, server, list(range(600)))
            grown = difference(before, KIND.scrape(http, server.url).counters)
            return grown["prefix_hits"], grown["external_hits"]

        assert [hits(), hits()] == [(0, 0), (592, 0)]
        assert http.post(f"{server.url}/reset_prefix_cache").json() == {"success": True}
        assert hits() == (0, 512)
        http.post(f"{server.url}/reset_prefix_cache?reset_external=true")
        assert hits() == (0, 0)
        http.post(f"{server.url}/reset_prefix_cache")
        assert http.post(f"{server.url}/cache/clear").json() == {"status": "ok", "cleared": {"tier": "l1"}}
        assert read_status(http, server.url).chunks == 0
        assert hits() == (0, 0)
        assert http.post(f"{server.url}/cache/clear", json={"tier": "l2"}).status_code == 400


def test_a_reset_may_refuse_in_a_good_answer(http: httpx.Client) -> None:
    with serving(Script(resets=False, pool_tokens=800)) as server:
        complete(http, server, list(range(40)))
        answer = http.post(f"{server.url}/reset_prefix_cache")
        assert (answer.status_code, answer.json(), server.resets) == (200, {"success": False}, 0)
        complete(http, server, list(range(40)))
        assert KIND.scrape(http, server.url).counters["prefix_hits"] == 32


def test_stores_take_their_time(http: httpx.Client) -> None:
    with serving(Script(pool_tokens=8000, host_tokens=8192, store_s=0.3)) as server:
        complete(http, server, list(range(600)))
        writing = read_status(http, server.url)
        assert (writing.quiet, writing.writing, writing.chunks) == (False, 2, 0)
        assert await_stores(http, server.url, 10, 2).chunks == 2


def test_what_another_salt_left_is_not_found(http: httpx.Client) -> None:
    prompt = list(range(600))
    with serving(Script(pool_tokens=8000, host_tokens=8192)) as server:
        hits = []
        for salt in ("one", "one", "two", None):
            before = KIND.scrape(http, server.url).counters
            complete(http, server, prompt, 4, **({} if salt is None else {"cache_salt": salt}))
            hits.append(difference(before, KIND.scrape(http, server.url).counters)["prefix_hits"])
        http.post(f"{server.url}/reset_prefix_cache")
        complete(http, server, prompt, cache_salt="two")
        complete(http, server, prompt, cache_salt="three")
        assert KIND.scrape(http, server.url).counters["external_hits"] == 512
    assert hits == [0, 592, 0, 0]


def test_a_request_may_be_counted_late(http: httpx.Client) -> None:
    with serving(Script(count_s=60)) as server:
        assert complete(http, server, [1, 2, 3], stream=True).text.endswith("data: [DONE]\n\n")
        reading = KIND.scrape(http, server.url)
    assert (reading.gauges["running"], reading.counters["finished"]) == (1, 0)


def test_a_lookup_may_be_counted_twice_and_a_metric_be_missing(http: httpx.Client) -> None:
    with serving(Script(pool_tokens=1600, host_tokens=1024, tier_lookups=2, hides="prompt_tokens")) as server:
        complete(http, server, list(range(40)))
        counters = KIND.scrape(http, server.url).counters
    assert (counters["prefix_queries"], counters["external_queries"]) == (40, 80)
    assert not any(name.startswith(("prompt_tokens", "cached_tokens")) for name in counters)


def test_counters_can_be_told_to_lie(http: httpx.Client) -> None:
    with serving(Script(foreign_tokens=100, preempt_every=2, restart_after=2)) as server:
        first = KIND.scrape(http, server.url)
        for _ in range(2):
            complete(http, server, list(range(40)))
        second = KIND.scrape(http, server.url)
        assert difference(first.counters, second.counters)["prefix_queries"] == 2 * (40 + 100)
        assert second.counters["preemptions"] == 1
        http.post(f"{server.url}/fake/counters", json={"prefix_cache_queries": -50})
        assert KIND.scrape(http, server.url).counters["prefix_queries"] == 230
        complete(http, server, list(range(40)))
        third = KIND.scrape(http, server.url)
        assert third.counters["prefix_queries"] == 140
        assert third.started is not None
        assert second.started is not None
        assert third.started > second.started
        assert http.post(f"{server.url}/fake/counters", json={"no such": 1}).status_code == 400


def test_what_it_says_of_itself(http: httpx.Client) -> None:
    with serving() as server:
        model = KIND.served_model(http, server.url)
        assert (model.name, model.version, model.max_tokens) == ("fake", "0.32.0", 131072)
        server.take_script({"max_model_len": 64})
        assert KIND.served_model(http, server.url).max_tokens == 64
        assert http.get(f"{server.url}/health").status_code == 200
        server.script = Script(healthy=False)
        assert http.get(f"{server.url}/health").status_code == 503
        assert http.get(f"{server.url}/nowhere").status_code == 404
        assert KIND.scrape(http, server.url).capacity is None


def test_the_truth_is_known_by_request_id(http: httpx.Client) -> None:
    with serving(Script(first_token_s=0.01, gap_s=0.002)) as server:
        answer = complete(http, server, [1, 2, 3], 3, user="mine", stream=True)
        (truth,) = http.get(f"{server.url}/fake/truth").json()
    assert (truth["request_id"], truth["prompt_tokens"], truth["tokens"]) == ("mine", 3, 3)
    assert truth["first_token_s"] - truth["arrival_s"] >= 0.009
    assert truth["last_token_s"] >= truth["first_token_s"]
    assert answer.text.endswith("data: [DONE]\n\n")
    assert [json.loads(line[6:])["choices"][0]["text"] for line in answer.text.split("\n\n")[:3]] == [" t0", " t1", " t2"]


def test_an_answer_without_a_stream_is_whole(http: httpx.Client) -> None:
    with serving() as server:
        answer = complete(http, server, [1, 2], 3).json()
        assert KIND.scrape(http, server.url).counters["output_tokens"] == server.truth["r0"].tokens == 3
    assert answer["choices"][0]["text"] == " t0 t1 t2"
    assert answer["usage"]["completion_tokens"] == 3


@pytest.fixture(scope="module")
def strict() -> Iterator[FakeServer]:
    with serving(SCRIPT) as server:
        yield server


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_refuses_what_vllm_refuses_and_serves_what_it_serves(http: httpx.Client, strict: FakeServer, case: Case) -> None:
    seen, text = send(http, strict.url, case)
    assert seen == case.seen()
    assert case.says in text


@pytest.mark.parametrize("case", BEYOND, ids=lambda case: case.name)
def test_what_it_cannot_serve_is_refused_by_name(http: httpx.Client, strict: FakeServer, case: Case) -> None:
    seen, text = send(http, strict.url, case)
    assert (seen.status, seen.kind) == (501, "NotImplementedError")
    assert text.startswith("the scripted server cannot serve ")


@pytest.mark.parametrize(("method", "path", "status", "detail"), NO_ROUTE)
def test_a_path_that_is_none_is_answered_as_vllm_does(
    http: httpx.Client, strict: FakeServer, method: str, path: str, status: int, detail: str
) -> None:
    answer = http.request(method, f"{strict.url}{path}")
    assert (answer.status_code, answer.json()) == (status, {"detail": detail})


def test_a_refusal_is_counted_nowhere_and_leaves_the_connection_open(http: httpx.Client) -> None:
    with serving(SCRIPT) as server:
        for stream in (False, True):
            assert "out of vocabulary" in complete(http, server, [5000], stream=stream).text
        assert complete(http, server, [1]).status_code == 200
        assert (server.connections_made, server.requests) == (1, 1)
        assert KIND.scrape(http, server.url).counters["prompt_tokens"] == 1


def test_without_a_vocabulary_any_id_is_served_that_vllm_could_hold(http: httpx.Client) -> None:
    with serving(Script(pool_tokens=64)) as server:
        assert complete(http, server, [2**63 - 1]).status_code == 200
        assert complete(http, server, [2**63]).status_code == 400


def test_a_truncated_prompt_keeps_the_side_that_is_named(http: httpx.Client) -> None:
    with serving() as server:

        def kept(**more: Any) -> list[int]:
            answer = complete(http, server, [1, 2, 3], truncate_prompt_tokens=2, return_token_ids=True, stream=True, **more)
            ids: list[int] = json.loads(answer.text.split("\n\n")[0][6:])["choices"][0]["prompt_token_ids"]
            return ids

        assert (kept(), kept(truncation_side="left"), kept(truncation_side="right")) == ([2, 3], [2, 3], [1, 2])


def test_a_prompt_that_fits_no_pool_is_refused(http: httpx.Client) -> None:
    with serving(Script(pool_tokens=64)) as server:
        answer = complete(http, server, list(range(100)))
        assert (answer.status_code, answer.json()["error"]["type"], server.truth) == (400, "BadRequestError", {})


def test_a_script_with_a_fault_that_is_none_is_refused(http: httpx.Client) -> None:
    with pytest.raises(ValueError, match="no fault 'x'"):
        Script(fault="x")
    with serving() as server:
        assert http.post(f"{server.url}/fake/script", json={"fault": "x"}).status_code == 400
        assert http.post(f"{server.url}/fake/script", json={"no_such": 1}).status_code == 400
        assert http.post(f"{server.url}/fake/script", json={"fault": "status", "fault_status": 429}).status_code == 200
        assert complete(http, server, [1]).status_code == 429
        assert (server.requests, KIND.scrape(http, server.url).counters["prompt_tokens"]) == (1, 0)


def alone(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "kvbench.testing.fake_server", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_as_a_process_it_prints_its_address_and_ends_with_sigterm(http: httpx.Client) -> None:
    process, url = alone("--gap-s", "0.001", "--no-done")
    with process:
        body = {"prompt": [1, 2], "max_tokens": 2, "stream": True}
        text = http.post(f"{url}/v1/completions", json=body).text
        process.terminate()
        assert process.wait(10) == 0
    assert " t1" in text
    assert "[DONE]" not in text


@pytest.mark.parametrize(
    ("arguments", "path", "body"),
    [
        (["--fault", "die", "--fault-after", "1"], "/v1/completions", {"prompt": [1], "max_tokens": 2, "stream": True}),
        ([], "/fake/die", {}),
    ],
)
def test_a_process_that_dies_says_so_by_its_exit_code(http: httpx.Client, arguments: list[str], path: str, body: dict[str, Any]) -> None:
    process, url = alone(*arguments)
    with process:
        with pytest.raises(httpx.TransportError):
            http.post(f"{url}{path}", json=body)
        assert process.wait(10) == 1


def test_its_help_names_every_field_and_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    words = " ".join(said.split())
    assert all("--" + name.replace("_", "-") in said for name in Script.__slots__)
    assert all(f"{name}: {does}" in words for name, does in FAULTS.items())


def test_an_address_that_is_taken_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        assert main(["--port", str(server.port)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("fake server: ")
    assert said.count("\n") == 1
