"""The prediction of a run's passes, from its own workload, as a pass record carries it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvbench.config.common import DEFAULT_BLOCK_SIZE, DEFAULT_KV_TOKENS
from kvbench.experiments.cyclic.options import DEFAULT_DOCS, CyclicOptions
from kvbench.experiments.cyclic.workload import make_cyclic
from kvbench.runners.base import ClosedLoop, ListSource
from kvbench.runners.profiles import PROFILES
from kvbench.runners.simulator.prediction import Predictor
from kvbench.runners.simulator.simulator import CacheSizes
from kvbench.runs.rates import Rates

RATES = Rates(prefill=10_000, restore=500_000, overhead_ms=5)


def predictions(profile: str, host: int | None, rates: Rates | None) -> list[dict[str, object]]:
    config = CyclicOptions.model_validate({})
    workload = make_cyclic(config, DEFAULT_DOCS, 2048, Path("none"))
    predictor = Predictor(PROFILES[profile], CacheSizes(DEFAULT_KV_TOKENS, DEFAULT_BLOCK_SIZE, host, config.chunk_tokens), rates)
    return [predictor.predict(ListSource(workload.requests("cpu", 0, plan)), ClosedLoop(1)).to_json() for plan in workload.passes]


def test_the_default_run() -> None:
    config = CyclicOptions.model_validate({})
    host = make_cyclic(config, DEFAULT_DOCS, 2048, Path("none")).working_set_chunks(config.chunk_tokens) * config.chunk_tokens
    passes = predictions("engine", host, RATES)
    assert [(one["device"], one["host"], one["computed"]) for one in passes] == [(0, 0, 50_250), (0, 48_640, 1_610), (21_504, 27_776, 970)]
    requests = passes[2]["requests"]
    assert isinstance(requests, list)
    assert requests[3:6] == [[5024, 0, 1], [1408, 3456, 161], [0, 4864, 161]]
    times = passes[1]["ttft_ms"]
    assert isinstance(times, list)
    assert times == pytest.approx([5 + 161 / 10 + 4864 / 500] * 10)
    assert json.loads(json.dumps(passes)) == passes


def test_whole_documents_go_by_their_number() -> None:
    passes = predictions("documents", None, None)
    assert [one["device"] for one in passes] == [0, 0, 4 * 5025]
    assert passes[0]["ttft_ms"] == [None] * 10
    assert passes[0]["rates"] is None


def test_a_pass_without_requests() -> None:
    predictor = Predictor(PROFILES["engine"], CacheSizes(64, 16))
    assert predictor.predict(ListSource([]), ClosedLoop(1)).to_json()["device"] == 0
