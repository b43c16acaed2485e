"""``--compile`` changes the speed and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from engine.reference import DEVICE, LOGITS, Reference, WatchedEngine, difference, draw, kv_difference
from kvbench.runners.engine.model import load_model


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")  # torch's own, while it compiles
def test_a_compiled_model_gives_the_same_tokens_logits_and_kv(folder: Path, reference: Reference) -> None:
    model = load_model(str(folder), DEVICE, torch.float64, compile=True)
    engine = WatchedEngine(model, blocks=64, budget=37, host=64)
    prompts = [(draw(seed, 20 + 7 * seed), 12) for seed in range(3)]
    sequences = engine.run([*prompts, *prompts], concurrency=3)
    assert difference(reference, engine, sequences) < LOGITS
    assert kv_difference(reference, engine, sequences) < LOGITS  # not KV: rotary tables are float32, and the compiler's sine is its own
    assert engine.counters.device_hit_tokens > 0
