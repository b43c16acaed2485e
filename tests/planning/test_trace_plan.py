"""Plans for traces: hit rates as published, tiers as the simulator reads the same prompts token by token, windows, and the reports."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvbench.planning.trace_plan
from kvbench.cli.main import main
from kvbench.errors import UsageError
from kvbench.planning.config import PlanConfig
from kvbench.planning.trace_accesses import block_trace
from kvbench.planning.trace_plan import TracePlan, plan_trace, read_tiers
from kvbench.reports import trace_plan as reports
from kvbench.reports.formats.json import to_json
from kvbench.reports.plan_plots import trace_plots
from kvbench.runners.profiles import ENGINE, PROFILES
from kvbench.runners.simulator.simulator import CacheSizes, PromptSimulator, TierTokens
from kvbench.runners.simulator.stack_distance import hit_curve
from kvbench.workloads.traces.trace import Prompts, Trace
from tests.traces import EXCERPT, hashed, mooncake_file, read_trace, write_trace

SETTINGS = settings(deadline=None, derandomize=True, max_examples=60, suppress_health_check=list(HealthCheck))
CAPACITIES = [None, 100_000, 50_000, 30_000, 10_000, 1_000]
PUBLISHED = {
    "conversation": [0.3664, 0.3637, 0.3546, 0.3257, 0.2116, 0.0445],
    "synthetic": [0.6396, 0.6396, 0.6396, 0.6242, 0.4239, 0.0841],
}
"""Touched tail first, counted by a script of its own."""


def plan(trace: Path, **given: Any) -> TracePlan:
    return plan_trace(PlanConfig.model_validate({"trace": trace, **given}))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_hit_rates(name: str) -> None:
    curve = hit_curve(block_trace(read_trace(mooncake_file(name)), 512), tail_first=True)
    assert [round(curve.rate_at(capacity) or 0.0, 4) for capacity in CAPACITIES] == PUBLISHED[name]
    made = plan(mooncake_file(name), kv_tokens=10_000 * 512)
    assert made.lru is not None
    assert made.optimum is not None
    assert (made.bound, made.lru.hit_rate) == (curve.rate_at(None), curve.rate_at(10_000))
    assert made.lru.hit_rate <= made.optimum <= made.bound


def leading_run_hits(requests: list[list[int]], capacity: int | None) -> int:
    """The rule of the published rates, tail first: a request's hits are its leading run; then all its blocks are touched."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for ids in requests:
        hits += next((place for place, block in enumerate(ids) if block not in held), len(ids))
        for block in reversed(ids):
            held.pop(block, None)
            held[block] = None
        while capacity is not None and len(held) > capacity:
            held.popitem(last=False)
    return hits


def test_an_excerpt_at_every_capacity() -> None:
    made = plan(EXCERPT)
    requests = [json.loads(line)["hash_ids"] for line in EXCERPT.read_text().splitlines()]
    assert (made.requests, made.accesses, made.distinct, round(made.bound, 4)) == (77, 413, 159, 0.6150)
    for pool in made.curve:
        assert pool.hit_rate * 413 == pytest.approx(leading_run_hits(requests, pool.blocks))
    for pool, share in zip(made.smallest, (0.5, 0.8, 0.9, 0.95, 0.99, 1.0), strict=True):
        assert leading_run_hits(requests, pool.blocks) >= share * 254 > leading_run_hits(requests, pool.blocks - 1)


def test_a_block_behind_a_miss_is_no_hit(tmp_path: Path) -> None:
    """Block by block the second request would hit one of two: 0.25 of all. The leading run ends before it."""
    assert plan(write_trace(tmp_path / "a.jsonl", [hashed(1, 2, tokens=1024), hashed(3, 2, tokens=1024)])).bound == 0.0


def test_a_last_block_that_is_not_full_counts_and_hits(tmp_path: Path) -> None:
    made = plan(write_trace(tmp_path / "a.jsonl", [hashed(1, 2, tokens=513), hashed(1, 2, tokens=513)]))
    assert (made.accesses, made.bound) == (4, 0.5)


def test_blocks_smaller_than_the_trace_own(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path / "a.jsonl", [hashed(1, 2, tokens=600), hashed(1, 3, tokens=700)]))
    blocks = block_trace(trace, 256)
    assert [len(ids) for ids in blocks.requests()] == [3, 3]
    assert hit_curve(blocks, tail_first=True).hits_at(None) == 2
    with pytest.raises(UsageError, match="--block-size 100 does not divide the 512 tokens"):
        block_trace(trace, 100)


def test_token_ids_are_cut_into_blocks(tmp_path: Path) -> None:
    lines = [{"token_ids": [*range(40)]}, {"token_ids": [*range(40)]}, {"token_ids": [*range(40), 99]}]
    blocks = block_trace(read_trace(write_trace(tmp_path / "a.jsonl", lines)), 16)
    assert [list(ids) for ids in blocks.requests()] == [[0, 1, 2], [0, 1, 2], [0, 1, 3]]


def test_a_profile_of_another_policy_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENGINE.device is not None
    fifo = replace(ENGINE, device=replace(ENGINE.device, policy="fifo"))
    monkeypatch.setattr(kvbench.planning.trace_plan, "PROFILES", {"engine": fifo})
    with pytest.raises(UsageError, match=r"^profile engine evicts by fifo, .* stack distances, which are lru's; use policy lru"):
        plan(EXCERPT, profile="engine")


# Two tiers, against the same prompts read token by token.

Prompt = tuple[list[int], int, int]
"""Choices at each block, which name its prefix; tokens of the last block; output."""


def tree_prompts(seed: int) -> list[Prompt]:
    """Prompts of up to 7 blocks that share heads of every length."""
    draw = random.Random(seed)
    return [([draw.randrange(2) for _ in range(draw.randint(1, 7))], draw.randint(1, 8), draw.randint(0, 12)) for _ in range(60)]


def tree_trace(folder: Path, prompts: list[Prompt]) -> Trace:
    """Blocks of 8 tokens whose ids stand for whole prefixes, the last one's length included."""
    numbers: dict[tuple[Any, ...], int] = {}
    lines = []
    for path, last, output in prompts:
        prefixes = [(*path[: end + 1], 8 if end + 1 < len(path) else last) for end in range(len(path))]
        ids = [numbers.setdefault(prefix, len(numbers)) for prefix in prefixes]
        lines.append(hashed(*ids, tokens=8 * (len(path) - 1) + last, output=output))
    return read_trace(write_trace(folder / "tree.jsonl", lines), block_tokens=8)


@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    block_size=st.sampled_from([1, 2, 4, 8]),
    chunk_blocks=st.integers(1, 4),
    pool=st.integers(40, 120),
    host=st.integers(0, 300),
    profile=st.sampled_from(["engine", "vllm"]),
)
def test_tiers_are_what_the_simulator_reads_token_by_token(
    tmp_path_factory: pytest.TempPathFactory, seed: int, block_size: int, chunk_blocks: int, pool: int, host: int, profile: str
) -> None:
    prompts = tree_prompts(seed)
    trace = tree_trace(tmp_path_factory.mktemp("tree"), prompts)
    outputs = [max(output, 1) for _, _, output in prompts]
    sizes = {"kv_tokens": pool, "host_tokens": host, "block_size": block_size, "chunk_tokens": chunk_blocks * block_size}
    config = PlanConfig.model_validate({"trace": Path("x"), "profile": profile, **sizes})
    rules = PROFILES[profile]
    assert rules.device is not None
    assert rules.host is not None
    made = Prompts(trace, 0, 5000)  # more than there are ids, so that they differ in the very first token
    expected: dict[str, list[TierTokens | None]] = {}
    room = pool // block_size - rules.device.reserved_blocks
    for arm, tier in (("none", None), ("cpu", host)):
        simulator = PromptSimulator(rules.device, rules.host, CacheSizes(pool, block_size, tier, chunk_blocks * block_size))
        expected[arm] = [
            simulator.read(made[index], output) if -(-(len(made[index]) + output - 1) // block_size) <= room else None
            for index, output in enumerate(outputs)
        ]
    at_pool, read = read_tiers(config, trace, outputs, 1)
    assert read == expected["cpu"]
    for found in at_pool.arms:
        known = [tokens for tokens in expected[found.name] if tokens is not None]
        assert (found.device, found.host, found.computed) == tuple(sum(part) for part in zip(*known, strict=True))
    assert at_pool.too_large == expected["cpu"].count(None)


def test_token_ids_read_as_the_same_trace_of_hash_ids(tmp_path: Path) -> None:
    trace = read_trace(EXCERPT)
    prompts = Prompts(trace, 0, 2048)
    own = [{"token_ids": list(prompts[index]), "output_tokens": trace.output_tokens[index]} for index in range(len(trace))]
    tokens = read_trace(write_trace(tmp_path / "own.jsonl", own))
    outputs = list(trace.output_tokens)
    sizes = {"kv_tokens": 20_480, "host_tokens": 40_960, "block_size": 16}
    found = [read_tiers(PlanConfig.model_validate({"trace": EXCERPT, **sizes}), one, outputs, 1) for one in (trace, tokens)]
    assert found[0] == found[1]


def test_the_host_tier_is_as_large_as_needed_unless_said(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.jsonl", [hashed(n, tokens=512, output=1) for n in range(10)] * 2)
    for profile, chunks in (("engine", 20), ("vllm", 26)):  # LMCache evicts from 0.8 of its size on: 20 chunks need more than 25
        made = plan(trace, profile=profile, kv_tokens=1024)
        assert made.at_pool is not None
        none, cpu = made.at_pool.arms
        assert (cpu.host_tokens, cpu.exact) == (chunks * 256, True)
        assert (none.device, cpu.host) == (0, 10 * 256 if profile == "engine" else 10 * 511)
    assert plan(trace, kv_tokens=1024, host_gib=0.5, bytes_per_token=2**20).at_pool.arms[1].host_tokens == 512  # type: ignore[union-attr]


def test_requests_larger_than_the_pool_are_left_out_and_said(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.jsonl", [hashed(1, tokens=512), hashed(1, 2, 3, tokens=1500), hashed(1, tokens=512)])
    made = plan(trace, kv_tokens=1024, profile="engine")
    assert made.at_pool is not None
    assert (made.at_pool.too_large, made.at_pool.arms[0].prompt, made.at_pool.arms[0].device) == (1, 1024, 256)
    assert "1 request was left out of the tiers" in reports.terminal(made)
    with pytest.raises(UsageError, match="--kv-tokens 256 holds no request of the trace; raise it"):
        plan(trace, kv_tokens=256)


# Time.


def test_windows_say_what_comes_again_from_where(tmp_path: Path) -> None:
    lines = [
        hashed(1, 2, tokens=1024, time_ms=5_000),
        hashed(1, 3, tokens=1024, time_ms=14_999),
        hashed(1, 2, tokens=1024, time_ms=15_000),
        hashed(1, 2, 4, tokens=1536, time_ms=45_000),
    ]
    made = plan(write_trace(tmp_path / "a.jsonl", lines), window=10, kv_tokens=1_000_000, profile="engine")
    found = [(window.start_s, window.requests, window.accesses, window.within, window.before) for window in made.windows]
    assert found == [(0.0, 2, 4, 1, 0), (10.0, 1, 2, 0, 2), (40.0, 1, 3, 0, 2)]
    assert [(window.prompt, window.device, window.host) for window in made.windows] == [(2048, 512, 0), (1024, 768, 0), (1536, 1024, 0)]
    # Ages: 9.999 (block 1), 0.001 and 10 (1, 2), 30 twice.
    assert made.reuse_age_s == pytest.approx((10.0, 30.0, 30.0))
    assert made.span_s == 40.0


@pytest.mark.parametrize("seconds", [1, 60, 777.7, 10_000])
def test_windows_sum_to_the_whole(seconds: float) -> None:
    made = plan(EXCERPT, window=seconds, kv_tokens=20_480)
    assert made.at_pool is not None
    assert sum(window.requests for window in made.windows) == 77
    assert sum(window.accesses for window in made.windows) == 413
    assert sum(window.within + window.before for window in made.windows) == 254
    cpu = made.at_pool.arms[1]
    for name in ("prompt", "device", "host"):
        assert sum(getattr(window, name) for window in made.windows) == getattr(cpu, name)


# Reports.


def test_the_report_fits_80_columns_and_names_every_part() -> None:
    text = reports.terminal(plan(EXCERPT, kv_tokens=20_480, host_tokens=40_960, window=600))
    assert max(len(line) for line in text.splitlines()) <= 80
    for part in (
        "77 requests in 49.1 min",
        "without a limit 61.50 %",
        "Smallest pool",
        "Prompt tokens by tier",
        "By windows of 600 s",
        "LMCache",
    ):
        assert part in text
    assert "| cpu " in reports.markdown(plan(EXCERPT, kv_tokens=20_480))


def test_the_json_is_the_plan() -> None:
    made = plan(EXCERPT, kv_tokens=20_480, window=600)
    read = json.loads(to_json(made))
    assert (read["format"], read["bound"], len(read["curve"]), len(read["windows"])) == (
        "kvbench.trace-plan/1", made.bound, len(made.curve), len(made.windows),
    )  # fmt: skip


def test_a_trace_in_which_nothing_comes_again_says_so(tmp_path: Path) -> None:
    made = plan(write_trace(tmp_path / "a.jsonl", [hashed(1, tokens=9), hashed(2, tokens=9)]))
    assert (made.bound, made.reuse_age_s) == (0.0, None)
    assert "no cache of any size hits anything" in " ".join(reports.terminal(made).split())


def test_many_windows_are_cut_in_the_report_only() -> None:
    made = plan(EXCERPT, window=1)
    assert len(made.windows) > 48
    assert f"... and {len(made.windows) - 48} windows more (--json has all)" in reports.terminal(made)


def test_the_plot_is_the_same_every_time() -> None:
    made = plan(EXCERPT, kv_tokens=20_480)
    first, second = trace_plots(made), trace_plots(made)
    assert first == second
    assert "pool without a limit" in first["trace-hits.svg"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"profile": "documents"}, "--profile documents keeps whole documents"),
        ({"host_tokens": 512}, "a host tier needs --kv-tokens"),
        ({"kv_tokens": 20_480, "block_size": 48, "chunk_tokens": 480}, "--block-size 48 does not divide the 512 tokens"),
    ],
)
def test_what_a_plan_of_a_trace_cannot_do(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        plan(EXCERPT, **given)


@pytest.mark.parametrize(
    "sizes", [{"block_size": 512}, {"kv_tokens": 4096, "chunk_tokens": 8}, {"kv_tokens": 4096, "block_size": 512, "chunk_tokens": 1024}]
)
def test_sizes_that_only_documents_would_refuse(sizes: dict[str, int], tmp_path: Path) -> None:
    """No tier without a pool, so its chunks do not matter; with one, blocks are those that chunks are made of."""
    trace = write_trace(tmp_path / "a.jsonl", [hashed(1, 2, tokens=1024)] * 2)
    made = plan(trace, profile="engine", **sizes)
    assert made.bound == 0.5
    block = {8: 8, 1024: 512}.get(sizes.get("chunk_tokens", 0))
    assert (None if made.at_pool is None else made.at_pool.block_size) == block


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kv-tokens", "20480", "--block-size", "512"), "--chunk-tokens 256 is not a multiple of --block-size 512"),
        (
            ("--kv-tokens", "20480", "--chunk-tokens", "100", "--block-size", "16"),
            "--chunk-tokens 100 is not a multiple of --block-size 16",
        ),
        (("--kv-tokens", "300", "--block-size", "512", "--chunk-tokens", "512"), "--kv-tokens 300 holds no request of the trace; raise it"),
    ],
)
def test_sizes_that_no_tier_has_are_refused_in_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    assert main(["plan", "--trace", str(EXCERPT), *words]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"kvbench: error: {message}\n")


def test_windows_need_times(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--window: .*own.jsonl has no timestamps"):
        plan(write_trace(tmp_path / "own.jsonl", [{"token_ids": [1]}]), window=5)
