"""Kinds of servers: found by name, and a runner asks the one it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import httpx
import pytest

from kvbench.errors import RunFailed
from kvbench.runners.base import Clock, ClosedLoop, DeviceCapacity, ListSource
from kvbench.runners.http.client import Client
from kvbench.runners.servers.counters import MetricNames, ServerMetric
from kvbench.runners.servers.kinds.kind import KINDS, ServerKind, TokensByTier
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.vllm.quiesce import Quiesce
from kvbench.runners.vllm.runner import VllmRunner
from kvbench.runs.records import RequestRecord
from kvbench.testing.fake_script import MODEL, Script
from kvbench.testing.fake_server import serving
from tests.runners.http.test_client import requests


def by_prompts(grown: Mapping[str, int], has_tier: bool) -> TokensByTier:
    """This kind tells prompts only: everything was computed."""
    return TokensByTier(0, 0, grown["prompts"])


OTHER = replace(
    KIND,
    name="other",
    title="Other",
    metrics=MetricNames({"prompts": ServerMetric("vllm:prompt_tokens_total")}, pool=lambda _: DeviceCapacity(32, 8)),
    pool_metric="other:pool",
    tokens_by_tier=by_prompts,
    contradiction=lambda tokens, grown: None,
    was_alone=lambda grown, prompt_tokens: grown == {"prompts": prompt_tokens},
)


def test_kinds_are_found_by_name_and_a_registered_one_is_one_of_them() -> None:
    assert KINDS["vllm"] is KIND
    KINDS.register(OTHER)
    assert set(KINDS.all()) == {"vllm", "other"}
    KINDS.unregister("other")
    assert set(KINDS.all()) == {"vllm"}


@pytest.mark.parametrize(("version", "known"), [("0.32.0", True), ("0.320.0", False), (None, False)])
def test_a_version_is_known_or_not(version: str | None, known: bool) -> None:
    assert KIND.is_known(version) == known


def test_each_kind_says_how_it_tells_its_pool() -> None:
    with serving(Script()) as server, httpx.Client(trust_env=False) as http:
        assert OTHER.read_pool(http, server.url) == DeviceCapacity(32, 8)
        with pytest.raises(RunFailed, match="the size of the pool \\(vllm:cache_config_info\\); is this a vLLM server"):
            KIND.read_pool(http, server.url)


@pytest.mark.parametrize(("kind", "device"), [(KIND, [0, 592]), (OTHER, [0, 0])], ids=["vllm", "other"])
def test_the_runner_asks_the_kind_of_its_server(kind: ServerKind, device: list[int]) -> None:
    records: list[RequestRecord] = []
    with serving(Script(pool_tokens=1600, block_size=16)) as server, httpx.Client(trust_env=False) as http:
        quiesce = Quiesce(http, server.url, None, 256, None, 1.0, kind)
        runner = VllmRunner(Client(server.url, MODEL, Clock(), token_ids=False), quiesce, False, {}, None)
        for _ in range(2):
            totals = runner.run_pass(ListSource(requests(1, 600)), ClosedLoop(1), records.append)
    assert totals.cached_tokens_device == device[1]
    if kind is KIND:
        assert [(record.cached_tokens_device, record.attribution) for record in records] == [(hits, "counters") for hits in device]
