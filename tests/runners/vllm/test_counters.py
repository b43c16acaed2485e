"""Counters as two real servers gave them after four documents of 2,003 tokens were read twice (tiny model, 96 blocks of 32, LMCache)."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from kvbench.errors import RunFailed
from kvbench.runners.base import DeviceCapacity
from kvbench.runners.servers.counters import MetricNames, Scrape, difference
from kvbench.runners.servers.counters import parse as parse_as
from kvbench.runners.servers.kinds.kind import ServedModel, TokensByTier
from kvbench.runners.servers.kinds.vllm import KIND, contradiction, served_model, tokens_by_tier
from kvbench.runners.vllm.lmcache import LMCACHE as LMCACHE_NAMES

DATA = Path(__file__).parent / "data"
VLLM = (DATA / "metrics-vllm-0.32.0.txt").read_text()
LMCACHE = (DATA / "metrics-lmcache-0.5.6.txt").read_text()


def parse(text: str, names: MetricNames = KIND.metrics) -> Scrape:
    return parse_as(text, names)


def answering(pages: dict[str, httpx.Response]) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(lambda request: pages.get(request.url.path, httpx.Response(404))))


def test_every_counter_of_vllm() -> None:
    assert parse(VLLM).counters == {
        "prefix_queries": 16024,
        "prefix_hits": 0,
        "external_queries": 16024,
        "external_hits": 7168,
        "prompt_tokens": 16024,
        "prompt_tokens_computed": 8856,
        "prompt_tokens_device": 0,
        "prompt_tokens_external": 7168,
        "cached_tokens": 7168,
        "cached_tokens_device": 0,
        "cached_tokens_host": 0,
        "cached_tokens_disk": 0,
        "cached_tokens_p2p": 0,
        "cached_tokens_unspecified": 7168,
        "output_tokens": 64,
        "preemptions": 0,
        "finished": 8,
        "finished_length": 8,
        "finished_stop": 0,
        "finished_abort": 0,
        "finished_error": 0,
    }


def test_gauges_capacity_and_the_start_of_the_process() -> None:
    seen = parse(VLLM)
    assert seen.gauges == {"running": 0, "waiting": 0, "kv_usage": 0}
    assert seen.capacity == DeviceCapacity(tokens=96 * 32, block_size=32)
    assert seen.started == 1795997439.26


def test_every_counter_of_lmcache() -> None:
    seen = parse(LMCACHE, LMCACHE_NAMES)
    assert seen.counters == {
        "lmcache_lookups": 8,
        "lmcache_asked_tokens": 14336,
        "lmcache_hit_tokens": 7168,
        "lmcache_hit_tokens_l1": 7168,
        "lmcache_hit_tokens_l2": 0,
        "lmcache_chunks_written": 28,
        "lmcache_chunks_read": 28,
    }
    assert seen.capacity is None


def test_engines_are_summed() -> None:
    two = "".join(f'vllm:num_preemptions_total{{engine="{engine}"}} {count}\n' for engine, count in ((0, 2), (1, 3)))
    assert parse(f"# TYPE vllm:num_preemptions counter\n{two}").counters == {"preemptions": 5}


def test_what_a_server_does_not_have_is_unknown() -> None:
    seen = parse("# TYPE up gauge\nup 1\n")
    assert (seen.counters, seen.gauges, seen.capacity, seen.started) == ({}, {}, None, None)
    assert parse('# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size="None",num_gpu_blocks="4"} 1\n').capacity is None
    assert parse(
        '# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size="16",num_gpu_blocks="4"} 1\n'
    ).capacity == DeviceCapacity(64, 16)


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_a_value_that_is_no_number_is_unknown(value: str) -> None:
    reading = parse(f"vllm:preemptions_total 1\nvllm:prefix_cache_hits_total {value}\nprocess_start_time_seconds {value}\n")
    assert (reading.counters, reading.started) == ({}, None)


def test_differences() -> None:
    assert difference({"a": 1, "b": 5, "gone": 1}, {"a": 4, "b": 3, "new": 2}) == {"a": 3, "b": -2, "new": 2}


def test_the_tokens_of_a_real_server_by_tier_contradict_nothing() -> None:
    counters = parse(VLLM).counters
    tokens = tokens_by_tier(counters, has_tier=True)
    assert tokens == TokensByTier(device=0, host=7168, computed=8856)
    assert contradiction(tokens, counters) is None


GROWN = {"prefix_hits": 100, "external_hits": 512, "prompt_tokens": 1000, "preemptions": 0}


@pytest.mark.parametrize("missing", ["prefix_hits", "external_hits", "prompt_tokens", "preemptions"])
def test_without_one_of_its_counters_they_are_unknown(missing: str) -> None:
    assert tokens_by_tier({name: value for name, value in GROWN.items() if name != missing}, has_tier=True) is None


@pytest.mark.parametrize("change", [{"prefix_hits": -1}, {"external_hits": -1}, {"prompt_tokens": -1}, {"preemptions": 1}])
def test_where_one_went_backwards_or_a_request_was_preempted_they_are_unknown(change: dict[str, int]) -> None:
    assert tokens_by_tier(GROWN | change, has_tier=True) is None


def test_a_server_without_a_tier_needs_no_counter_of_one() -> None:
    assert tokens_by_tier({"prefix_hits": 100, "prompt_tokens": 1000, "preemptions": 0}, has_tier=False) == TokensByTier(100, 0, 900)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"prompt_tokens_device": 100, "prompt_tokens_external": 512, "prompt_tokens_computed": 388}, None),
        ({"external_hits": 1024}, "100, 1,024, -124 by hits, unknown, unknown, unknown by prompt tokens"),
        ({"prompt_tokens_device": 50}, "100, 512, 388 by hits, 50, unknown, unknown by prompt tokens"),
        ({"prompt_tokens_external": 256}, "100, 512, 388 by hits, unknown, 256, unknown by prompt tokens"),
        ({"prompt_tokens_computed": 389}, "100, 512, 388 by hits, unknown, unknown, 389 by prompt tokens"),
    ],
)
def test_hits_that_contradict_the_prompt_tokens(change: dict[str, int], words: str | None) -> None:
    grown = GROWN | change
    tokens = tokens_by_tier(grown, has_tier=True)
    assert tokens is not None
    found = contradiction(tokens, grown)
    assert found == (words and f"the server's counters contradict each other: device, host, computed are {words}")


def test_a_scrape_over_http() -> None:
    with answering({"/metrics": httpx.Response(200, text=VLLM)}) as client:
        assert KIND.scrape(client, "http://server").counters["external_hits"] == 7168


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx.Response(503), "http://server/metrics: answered 503 Service Unavailable"),
        (httpx.Response(200, text="<html>{ nonsense"), "/metrics cannot be read"),
        (httpx.Response(401), "answered 401 Unauthorized; it wants to know who is asking: with --url or --from-server, --api-key-env"),
        (
            httpx.Response(307, headers={"location": "https://u:geheim@sso/in?next=geheim"}),
            r"; it sends on to https://\*\*\*@sso/in, where",
        ),
    ],
)
def test_no_metrics_is_an_error(answer: httpx.Response, words: str) -> None:
    with answering({"/metrics": answer}) as client, pytest.raises(RunFailed, match=words):
        KIND.scrape(client, "http://server")


def test_nobody_there_is_an_error() -> None:
    with httpx.Client(trust_env=False) as client, pytest.raises(RunFailed, match=r"http://127\.0\.0\.1:9/metrics: no answer"):
        KIND.scrape(client, "http://127.0.0.1:9")


def test_the_served_model() -> None:
    models = {"data": [{"id": "tiny", "root": "/models/tiny", "max_model_len": 3040}]}
    pages = {"/v1/models": httpx.Response(200, json=models), "/version": httpx.Response(200, json={"version": "0.32.0"})}
    with answering(pages) as client:
        assert served_model(client, "http://server") == ServedModel("tiny", "/models/tiny", 3040, "0.32.0")
    with answering({"/v1/models": httpx.Response(200, json={"data": [{"id": "x"}]})}) as client:
        assert served_model(client, "http://server") == ServedModel("x", None, None, None)


def test_what_another_kind_of_server_says_of_its_model_is_unknown() -> None:
    models = {"data": [{"id": "x", "root": 7, "max_model_len": "4k"}]}
    pages = {"/v1/models": httpx.Response(200, json=models), "/version": httpx.Response(200, json={"version": None})}
    with answering(pages) as client:
        assert served_model(client, "http://server") == ServedModel("x", None, None, None)


@pytest.mark.parametrize("content", [{"data": []}, {}, {"data": [{}]}, {"data": None}])
def test_no_model_is_an_error(content: object) -> None:
    with answering({"/v1/models": httpx.Response(200, json=content)}) as client, pytest.raises(RunFailed, match="names no model"):
        served_model(client, "http://server")
