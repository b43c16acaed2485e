"""The simulator against the engine's own scheduler, pool, prefix cache and host tier, request for request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.runners.engine.kv.policies.registry import policies
from kvbench.runners.profiles import ENGINE, Profile
from kvbench.runners.simulator.simulator import CacheSizes, TierTokens, make_simulator
from tests.runners.engine.driver import FakeEngine, expected

ALPHABET = 2048
SETTINGS = settings(deadline=None, derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.too_slow])

Hits = list[TierTokens]


class Workload(NamedTuple):
    """Prompts with the number of tokens each generates, and the sizes they meet."""

    requests: list[tuple[list[int], int]]
    block: int
    blocks: int
    chunk: int
    host: int | None
    budget: int


def measured(workload: Workload, **policies: Any) -> Hits:
    """Tokens by tier as the engine, with arithmetic instead of a model, reports them; its invariants are checked after each step."""
    engine = FakeEngine(workload.blocks, workload.block, workload.budget, workload.host, workload.chunk, ALPHABET, **policies)
    hits = []
    for sequence in engine.run(workload.requests):
        device, host = sequence.device_hit or 0, sequence.host_hit or 0
        hits.append(TierTokens(device, host, sequence.prompt_tokens - device - host))
    return hits


def predicted(workload: Workload, profile: Profile = ENGINE, outputs_known: bool = True) -> Hits:
    """Tokens by tier as the simulator has them."""
    capacity = CacheSizes(workload.blocks * workload.block, workload.block, workload.host, workload.chunk)
    simulator = make_simulator(profile, capacity)
    return [
        simulator.read(prompt, output, output=expected(prompt, output, ALPHABET) if outputs_known else None)
        for prompt, output in workload.requests
    ]


@st.composite
def sizes(draw: st.DrawFn, requests: Sequence[tuple[list[int], int]]) -> Workload:
    """Any sizes in which each request fits the pool: pool and tier down to less than a document."""
    block = draw(st.sampled_from([1, 2, 3, 4, 8]))
    least = max(-(-(len(prompt) + output - 1) // block) for prompt, output in requests)
    total = sum(-(-(len(prompt) + output) // block) for prompt, output in requests)
    blocks = draw(st.integers(least, least + 4) | st.integers(least, max(least, total)))
    chunk = block * draw(st.sampled_from([1, 2, 3, 5]))
    host = draw(st.none() | st.integers(0, 8).map(lambda chunks: chunks * chunk) | st.integers(0, total * block))
    return Workload(list(requests), block, blocks, chunk, host, draw(st.sampled_from([1, 3, 7, 64, 2048])))


@st.composite
def documents(draw: st.DrawFn) -> Workload:
    """Documents with heads in common, read again and again in any order with one of two questions."""
    count = draw(st.integers(1, 5))
    head = draw(st.integers(0, 12))
    bodies = [[7] * draw(st.integers(0, head)) + [100 * (doc + 1) + j for j in range(draw(st.integers(1, 30)))] for doc in range(count)]
    questions = [[1], [2, 3, 4]]
    reads = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, 1), st.integers(1, 9)), min_size=1, max_size=16))
    return draw(sizes([(bodies[doc] + questions[question], output) for doc, question, output in reads]))


@st.composite
def colliding(draw: st.DrawFn) -> Workload:
    """Prompts over two tokens, so that heads coincide by chance at every length, ends at block and chunk borders included."""
    prompts = st.lists(st.integers(0, 1), min_size=1, max_size=14)
    return draw(sizes(draw(st.lists(st.tuples(prompts, st.integers(1, 6)), min_size=1, max_size=16))))


@st.composite
def conversations(draw: st.DrawFn) -> Workload:
    """Turns: some prompts continue an earlier prompt and its answer, cut anywhere."""
    requests: list[tuple[list[int], int]] = []
    for turn in range(draw(st.integers(1, 10))):
        start: list[int] = []
        continues = draw(st.booleans())
        if requests and continues:
            prompt, output = draw(st.sampled_from(requests))
            whole = prompt + expected(prompt, output, ALPHABET)
            start = whole[: draw(st.integers(1, len(whole)))][:30]
        added = [3000 + 10 * turn + j for j in range(draw(st.integers(0 if start else 1, 8)))]
        requests.append((start + added, draw(st.integers(1, 9))))
    return draw(sizes(requests))


@SETTINGS
@given(documents())
def test_documents(workload: Workload) -> None:
    assert predicted(workload) == measured(workload)


@SETTINGS
@given(documents())
def test_documents_when_the_output_is_not_known(workload: Workload) -> None:
    assert predicted(workload, outputs_known=False) == measured(workload)


@SETTINGS
@given(colliding())
def test_prompts_that_coincide_by_chance(workload: Workload) -> None:
    assert predicted(workload) == measured(workload)


@SETTINGS
@given(conversations())
def test_conversations(workload: Workload) -> None:
    assert predicted(workload) == measured(workload)


def changed(profile: Profile, **rules: Any) -> Profile:
    """The profile with some rules of its device or host changed."""
    assert profile.device is not None
    assert profile.host is not None
    device = {name: rule for name, rule in rules.items() if hasattr(profile.device, name)}
    host = {name: rule for name, rule in rules.items() if hasattr(profile.host, name)}
    return replace(profile, device=replace(profile.device, **device), host=replace(profile.host, **host))


POLICIES = st.sampled_from(sorted({*policies(), "fifo", "mru"}))
"""All that the engine has by itself, and two that are registered here."""


@pytest.mark.usefixtures("fifo_and_mru")
@SETTINGS
@given(documents() | colliding() | conversations(), POLICIES, POLICIES)
def test_under_any_policies_of_pool_and_tier(workload: Workload, device: str, host: str) -> None:
    assert ENGINE.device is not None
    assert ENGINE.host is not None
    profile = replace(ENGINE, device=replace(ENGINE.device, policy=device), host=replace(ENGINE.host, policy=host))
    assert predicted(workload, profile) == measured(workload, device_policy=device, host_policy=host)


@pytest.mark.usefixtures("fifo_and_mru")
@pytest.mark.parametrize(("policy", "hits"), [("fifo", (3, 2)), ("lru", (2, 4))])
def test_beladys_anomaly_in_pool_and_tier(policy: str, hits: tuple[int, int]) -> None:
    """The textbook's twelve accesses (``policies/test_contract.py``), each a full block and a last token, in three places and in four."""
    requests = [([document, document, 0], 1) for document in (1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5)]
    profile = changed(ENGINE, policy=policy)
    for places, expected_hits in zip((3, 4), hits, strict=True):
        for workload in (Workload(requests, 2, places + 1, 2, None, 64), Workload(requests, 2, 2, 2, 2 * places, 64)):
            found = measured(workload, device_policy=policy, host_policy=policy)
            assert predicted(workload, profile) == found
            tier = [tokens.device if workload.host is None else tokens.device + tokens.host for tokens in found]
            assert sum(tier) == 2 * expected_hits


def test_what_a_running_request_found_is_not_evicted_for_its_own_output() -> None:
    """The third request finds block 1 of its two; the other and its output take what is left, 3 and 4 included, and not block 1."""
    workload = Workload([([1, 2], 1), ([3, 4], 1), ([1, 2], 3), ([3, 4], 1)], 1, 4, 1, None, 64)
    assert [tokens.device for tokens in predicted(workload)] == [tokens.device for tokens in measured(workload)] == [0, 0, 1, 0]


ZEROS = [0] * 10
DOCUMENT, OTHER = [100, 101, 102, 103, 1], [200, 1]

TELLING: list[tuple[dict[str, Any], Workload]] = [
    ({"reserved_blocks": 1}, Workload([([0], 1), ([1, *ZEROS[:7]], 1), ([0, 0], 1)], 1, 9, 1, None, 1)),
    (
        {"blanks_first": False},
        Workload([([100, 1], 1), ([200, 201, 2, 3, 4], 1), ([200, 201, 2, 3, 4], 1), ([200, 201, 1], 2), ([100, 1], 1)], 1, 8, 1, None, 1),
    ),
    ({"tail_first": False}, Workload([([100, 1], 1), (OTHER, 1), ([100, 1], 1)], 1, 3, 1, None, 1)),
    ({"keeps_duplicates": True}, Workload([([0], 1), ([0], 5), ([0, 0], 1)], 1, 5, 1, None, 1)),
    ({"computes_last": False}, Workload([([3000], 1), ([3000], 1)], 1, 1, 1, None, 1)),
    ({"found_from_start": True}, Workload([([100, 1], 2), ([100, 1], 1), (OTHER, 4), ([100, 1], 1)], 1, 5, 1, 7, 1)),
    ({"hit_ends_at_block": False}, Workload([([100, 1], 1), ([100, 1], 1)], 2, 1, 2, 2, 1)),
    (
        {"stores_device_hits": True},
        Workload([(ZEROS[:2], 2), (ZEROS, 1), ([0], 5), ([1, 0, 0, 0], 2), (ZEROS[:3], 1)], 1, 10, 1, 19, 1),
    ),
    (
        {"stores_output": False},
        Workload([([0, 0, 1, *ZEROS[:7]], 1), ([1, *ZEROS[:7]], 1), (ZEROS[:9], 2), ([0, 0, 1, 0], 1)], 1, 10, 1, 23, 1),
    ),
    ({"policy": "fifo"}, Workload([(DOCUMENT[3:], 1), (OTHER, 1), (DOCUMENT[3:], 1), ([300, 1], 1), (DOCUMENT[3:], 1)], 1, 4, 1, None, 1)),
    ({"watermark": 0.8, "evicted_share": 0.2}, Workload([(DOCUMENT, 1), (OTHER, 1), (DOCUMENT, 1)], 1, 5, 1, 4, 1)),
]
"""A rule, and the smallest workload found that tells it from its opposite."""


@pytest.mark.usefixtures("fifo_and_mru")
@pytest.mark.parametrize(("rules", "workload"), TELLING, ids=[next(iter(rules)) for rules, _ in TELLING])
def test_a_simulator_with_any_one_rule_changed_disagrees(rules: dict[str, Any], workload: Workload) -> None:
    assert predicted(workload) == measured(workload)
    assert predicted(workload, changed(ENGINE, **rules)) != measured(workload)


def test_every_rule_is_told_from_its_opposite() -> None:
    rules = {field.name for record in (ENGINE.device, ENGINE.host) if record is not None for field in fields(record)}
    assert rules - {name for changes, _ in TELLING for name in changes} == {"chunk_tokens"}  # a size
