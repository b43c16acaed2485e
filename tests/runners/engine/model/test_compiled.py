"""``--compile`` changes the speed and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from kvbench.runners.engine.model.compiled import at_least_two
from kvbench.runners.engine.model.model import load_model
from tests.runners.engine.reference import DEVICE, LOGITS, Reference, WatchedEngine, difference, draw, kv_difference

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),  # torch's own, compiling
]


def test_a_compiled_model_gives_the_same_tokens_logits_and_kv(folder: Path, reference: Reference) -> None:
    model = load_model(str(folder), DEVICE, torch.float64, compile=True)
    assert model.decode_attention == ("C++ kernel" if DEVICE.type == "cpu" else None)
    engine = WatchedEngine(model, blocks=64, budget=37, host=64)
    prompts = [(draw(seed, 20 + 7 * seed), 12) for seed in range(3)]
    sequences = engine.run([*prompts, *prompts], concurrency=3)
    assert difference(reference, engine, sequences) < LOGITS
    assert kv_difference(reference, engine, sequences) < LOGITS  # not KV: rotary tables are float32, and the compiler's sine is its own
    assert engine.counters.device_hit_tokens > 0


@pytest.mark.skipif(DEVICE.type != "cpu", reason="packing is the CPU's")
def test_one_graph_with_packed_weights_serves_every_step(folder: Path) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    engine = WatchedEngine(load_model(str(folder), DEVICE, torch.bfloat16, compile=True), budget=8)
    engine.run([(draw(1, 30), 3)])  # chunks that sample nothing, then steps of one row
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        engine.run([(draw(seed, 20), 6) for seed in (2, 3)], concurrency=2)
    assert {1, 2} <= {len(counts) for counts in engine.batches}
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    names = {event.key for event in profile.key_averages()}
    assert "mkldnn::_linear_pointwise" in names
    assert not names & {"aten::mm", "aten::linear"}


@pytest.mark.parametrize(("items", "padded"), [([], [0, 0]), ([7], [7, 7]), ([7, 8], [7, 8]), ([7, 8, 9], [7, 8, 9])])
def test_a_step_is_padded_to_two_of_everything(items: list[int], padded: list[int]) -> None:
    assert at_least_two(items) == padded
