"""LMCache's status as a real server gave it, and the resets, each of which can refuse in a good answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvbench.errors import RunFailed
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.vllm import lmcache
from kvbench.runners.vllm.lmcache import LMCacheStatus, await_stores, clear, read_status

STATUS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "status-lmcache-0.5.6.json").read_text())
URL = "http://lmcache"


def with_values(**values: int) -> dict[str, Any]:
    """The status with other numbers, wherever these names stand."""

    def replace(content: Any) -> Any:
        if isinstance(content, dict):
            return {name: values.get(name, replace(item)) for name, item in content.items()}
        return content

    changed: dict[str, Any] = replace(deepcopy(STATUS))
    return changed


def client_for(answer: Callable[[httpx.Request], httpx.Response]) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(answer))


def showing(*readings: dict[str, Any]) -> httpx.Client:
    """A server whose status goes through these readings, and stays at the last."""
    left = list(readings)
    return client_for(lambda _: httpx.Response(200, json=left.pop(0) if len(left) > 1 else left[0]))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmcache, "POLL_S", 0.0)


def test_the_status_of_a_real_server() -> None:
    with showing(STATUS) as client:
        status = read_status(client, URL)
    assert status == LMCacheStatus(chunks=28, used_bytes=28 << 20, writing=0, storing=0, loading=0, workers=1)
    assert status.quiet


@pytest.mark.parametrize(
    "name",
    [
        "write_locked_count",
        "staging_object_count",
        "pending_keys_count",
        "in_flight_task_count",
        "read_locked_count",
        "submission_queue_size",
        "pending_queue_size",
        "in_flight_request_count",
    ],
)
def test_whatever_moves_is_not_quiet(name: str) -> None:
    with showing(with_values(**{name: 1})) as client:
        assert not read_status(client, URL).quiet


def test_objects_on_their_way_are_not_there_yet() -> None:
    with showing(with_values(staging_object_count=3)) as client:
        assert read_status(client, URL).chunks == 25


def test_stores_are_awaited_until_nothing_moves_twice() -> None:
    moving = with_values(total_object_count=20, write_locked_count=2)
    grown = with_values(total_object_count=21)
    with showing(moving, grown, moving, STATUS) as client:
        assert await_stores(client, URL, 10).chunks == 28


def test_stores_are_awaited_until_as_many_are_there() -> None:
    few = with_values(total_object_count=7)
    with showing(few, few, few, few, STATUS) as client:
        assert await_stores(client, URL, 10, chunks=28).chunks == 28


@pytest.mark.parametrize(
    ("status", "chunks", "words"),
    [
        (with_values(pending_keys_count=4), None, "28 chunks are there, 0 being written, 4 on the way to the second tier, 0 being loaded"),
        (STATUS, 29, "28 of 29 chunks are there"),
    ],
)
def test_stores_that_do_not_land_are_an_error(status: dict[str, Any], chunks: int | None, words: str) -> None:
    with showing(status) as client, pytest.raises(RunFailed, match=words):
        await_stores(client, URL, 0.01, chunks)


@pytest.mark.parametrize("content", [{}, {"storage_manager": None}, {**STATUS, "registered_gpu_ids": None}])
def test_another_kind_of_status_is_an_error(content: dict[str, Any]) -> None:
    with showing(content) as client, pytest.raises(RunFailed, match="is not what LMCache"):
        read_status(client, URL)


def clearing(answer: httpx.Response, left: int, posted: list[str] | None = None) -> httpx.Client:
    status = httpx.Response(200, json=with_values(total_object_count=left))

    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            if posted is not None:
                posted.append(request.url.path)
            return answer
        return status

    return client_for(respond)


def test_clearing() -> None:
    posted: list[str] = []
    with clearing(httpx.Response(200, json={"status": "ok", "cleared": {"tier": "l1"}}), 0, posted) as client:
        clear(client, URL)
    assert len(posted) == 1


@pytest.mark.parametrize(
    ("answer", "left", "words"),
    [
        (httpx.Response(200, json={"status": "error"}), 0, "did not clear"),
        (httpx.Response(200, json={"status": "ok"}), 2, "left 2 chunks"),
        (httpx.Response(503), 0, "answered 503"),
        (httpx.Response(200, text="ok"), 0, "no JSON object"),
    ],
)
def test_a_clear_that_clears_nothing_is_an_error(answer: httpx.Response, left: int, words: str) -> None:
    with clearing(answer, left) as client, pytest.raises(RunFailed, match=words):
        clear(client, URL)


def test_resetting() -> None:
    asked: list[tuple[str, str]] = []

    def respond(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path))
        return httpx.Response(200, json={"success": True})

    with client_for(respond) as client:
        KIND.reset(client, URL)
    assert asked == [("POST", "/reset_prefix_cache")]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx.Response(200, json={"success": False}), "the cache was not reset; blocks are still held"),
        (httpx.Response(200, json={}), "the cache was not reset"),
        (httpx.Response(404), "answered 404 Not Found; start the server with VLLM_SERVER_DEV_MODE=1"),
        (httpx.Response(500), "answered 500 Internal Server Error$"),
    ],
)
def test_a_reset_that_resets_nothing_is_an_error(answer: httpx.Response, words: str) -> None:
    with client_for(lambda _: answer) as client, pytest.raises(RunFailed, match=words):
        KIND.reset(client, URL)
