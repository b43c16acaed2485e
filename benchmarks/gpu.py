"""What a GPU machine shows, in one JSON file: the cyclic table on two real shapes, restore against a pinned copy, prefill against the
device's own matrix rate. Called by `scripts/gpu-check`; `--device cpu --shapes tiny` tries the script itself where there is no GPU.

Run: python benchmarks/gpu.py -o gpu.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kvbench.experiments.composed import load_config
from kvbench.models.units import ceil_div
from kvbench.reports.formats import terminal
from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.engine_config import EngineConfig
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.transfer import Copy, make_transfer
from kvbench.runners.engine.model.model import Model, load_model
from kvbench.runs.machine import describe_machine
from kvbench.runs.run_folder import read_run
from kvbench.session.session import run
from kvbench.session.watcher import Watcher
from kvbench.summary.summary import summarise
from kvbench.workloads.draws import Draws

POOL, BLOCK, CHUNK, TOKENS, ROUNDS = 21520, 16, 256, 5003, 7
RESTORED = 19 * CHUNK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--shapes", default="qwen2.5-1.5b,llama-3.1-8b")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    result: dict[str, Any] = {"benchmark": "gpu", "machine": describe_machine(), "device": describe_device(device), "shapes": {}}
    result["matrix_tflops"] = matrix_rate(device, dtype) / 1e12
    for shape in options.shapes.split(","):
        result["shapes"][shape] = {"cyclic": cyclic(shape, options.device)}
        model = load_model(shape, device, dtype)
        result["shapes"][shape] |= {"prefill": prefill(model, result["matrix_tflops"] * 1e12), "restore": restore(model)}
        del model
        options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")  # what is measured is kept
    print(json.dumps(result))


def describe_device(device: torch.device) -> dict[str, Any]:
    """Name, memory and CUDA version."""
    if device.type == "cpu":
        return {"name": "cpu", "threads": torch.get_num_threads()}
    facts = torch.cuda.get_device_properties(device)
    return {"name": facts.name, "memory_gib": round(facts.total_memory / 2**30, 1), "cuda": torch.version.cuda}


def cyclic(shape: str, device: str) -> dict[str, Any]:
    """The default experiment on this shape, with a host tier that holds the work; the summary and its printed table."""
    config = load_config(None, {"model": shape, "device": device, "kv_tokens": POOL})
    with tempfile.TemporaryDirectory() as folder:
        finished = run(config, Path(folder) / "run", Watcher(), ["benchmarks/gpu.py"])
        summary = summarise(read_run(finished.path))
    print(terminal.render(summary))
    return {"summary": summary.to_json(), "reasons": finished.reasons}


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of one large square product: the ceiling that prefill is compared with."""
    size = 8192 if device.type == "cuda" else 2048
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / timed(device, lambda: left @ right)


def prefill(model: Model, rate: float) -> dict[str, float]:
    """Seconds of a cold prefill, its FLOPs, and the share of the measured matrix rate it reaches."""
    blocks = ceil_div(TOKENS + 1, BLOCK)
    engine = Engine(model, EngineConfig(blocks, BLOCK, 8192, None, CHUNK))
    numbers = iter(range(ROUNDS + 1))

    def once() -> None:
        engine.submit("prefill", Draws(next(numbers), "gpu").integers(TOKENS, 0, model.vocab), 1)
        while engine.is_busy:
            engine.step()

    seconds = timed(model.network.device, once)
    embedding = model.network.get_input_embeddings().weight.numel()
    tied = model.network.config.tie_word_embeddings
    matrices = model.parameters - (embedding if tied else 2 * embedding)
    heads = model.network.config.num_attention_heads
    attention = 2 * TOKENS**2 * heads * model.shape.head_dim * model.shape.layers  # scores and values, the causal half of each
    flops = 2 * matrices * TOKENS + attention
    return {"tokens": TOKENS, "seconds": seconds, "tflop": flops / 1e12, "share_of_matrix_rate": flops / seconds / rate}


def restore(model: Model) -> dict[str, float]:
    """Milliseconds to restore 4,864 tokens in runs of 16 blocks, beside one copy of as many bytes from pinned memory."""
    device = model.network.device
    store = KVStore(model.shape, POOL // BLOCK, BLOCK, device, RESTORED // CHUNK, CHUNK // BLOCK)
    transfer = make_transfer(store)
    each = CHUNK // BLOCK
    copies = [Copy(slot, 0, list(range(2 * slot * each, (2 * slot + 1) * each))) for slot in range(RESTORED // CHUNK)]
    target = torch.empty_like(store.host, device=device)
    plain = timed(device, lambda: target.copy_(store.host, non_blocking=True))
    own = timed(device, lambda: transfer.load(copies).wait())
    gib = RESTORED * model.shape.bytes_per_token / 2**30
    return {"tokens": RESTORED, "gib": gib, "ms": own * 1e3, "gib_per_s": gib / own, "copy_ms": plain * 1e3, "share_of_copy": plain / own}


def timed(device: torch.device, call: Callable[[], object]) -> float:
    """Median seconds of a call, the device's queue empty before and after, after one call that does not count."""
    seconds = []
    for _ in range(ROUNDS + 1):
        synchronize(device)
        begin = time.perf_counter()
        call()
        synchronize(device)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def synchronize(device: torch.device) -> None:
    """Wait for everything given to the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
