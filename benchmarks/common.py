"""What every benchmark shares: interleaved timing, and the JSON line at the end with baseline, threads, cache state and machine."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.engine_config import EngineConfig
from kvbench.runners.engine.model.model import Model, load_model
from kvbench.workloads.draws import Draws
from lines import add_output, write_line

PAIRS = 7


def parse(description: str) -> argparse.Namespace:
    """The options all share. ``--model``: a named shape or a folder (SmolLM2: ``scripts/make_smollm2.py``)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="interleaved rounds, at least 7 to be quoted")
    parser.set_defaults(dtype="float32")
    add_output(parser)
    return parser.parse_args()


def load(name: str, dtype: str = "float32", compiled: bool = False) -> Model:
    """The model, as the engine loads it on the CPU."""
    return load_model(name, torch.device("cpu"), getattr(torch, dtype), compiled)


def reference(model: Model) -> Any:
    """The same weights under transformers' own attention (sdpa)."""
    import copy

    network = copy.deepcopy(model.network)
    network.set_attn_implementation("sdpa")
    return network


def prompt(number: int, tokens: int, model: Model) -> list[int]:
    """Random token ids; another number, another prompt, so that nothing is cached."""
    return Draws(number, "benchmark").integers(tokens, 0, model.vocab)


def engine(model: Model, blocks: int, max_batch_tokens: int = 2048, block_size: int = 16, host_tokens: int | None = None) -> Engine:
    """A cold engine."""
    return Engine(model, EngineConfig(blocks, block_size, max_batch_tokens, host_tokens, 256))


def interleaved(functions: dict[str, Callable[[int], float | None]], pairs: int) -> dict[str, list[float]]:
    """Call each function once a round, ``pairs`` rounds after one that does not count; seconds by name.

    A function gets the round's number, and may return its own measured seconds (to leave set-up out); else its whole call is timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(pairs + 1):
        for name, function in functions.items():
            begin = time.perf_counter()
            own = function(number)
            taken = time.perf_counter() - begin if own is None else own
            if number:
                seconds[name].append(taken)
    return seconds


def ratios(seconds: dict[str, list[float]], ours: str, baseline: str) -> dict[str, float]:
    """Median, lowest and highest ratio of ours to the baseline, round by round."""
    found = sorted(own / base for own, base in zip(seconds[ours], seconds[baseline], strict=True))
    return {"median": round(statistics.median(found), 3), "min": round(found[0], 3), "max": round(found[-1], 3)}


def report(benchmark: str, options: argparse.Namespace, results: dict[str, Any], **facts: Any) -> None:
    """Print the JSON line; ``facts`` name the baseline and the state of every cache."""
    line = {
        "benchmark": benchmark,
        "model": Path(options.model).name,
        "dtype": options.dtype,
        "pairs": options.pairs,
        "threads": torch.get_num_threads(),
        "omp_wait": os.environ.get("OMP_WAIT_POLICY") or os.environ.get("GOMP_SPINCOUNT"),
        **facts,
        "results": results,
    }
    write_line(line, options.output)


def median_ms(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Median milliseconds by name."""
    return {name: round(statistics.median(values) * 1e3, 2) for name, values in seconds.items()}
