"""Decoding 8 sequences at context 4,096: the engine, blocks scattered and consecutive, against two transformers caches.

Baselines: transformers with sdpa and its DynamicCache (which copies the whole cache each step), and the same with a dense cache that is
written in place (the least a contiguous cache can cost, if its length is known beforehand). Targets: at most 1.2 times the first with
scattered and 1.0 with consecutive blocks; at most 1.5 and 1.4 times the second. The cache holds random numbers: no prefill is timed.
Run: python benchmarks/decode.py [--model FOLDER]
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from common import engine, interleaved, load, median_ms, parse, ratios, reference, report
from kvbench.models.units import ceil_div
from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.kv.key_chain import KeyChain
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.scheduling.sequence import Sequence

SEQUENCES, CONTEXT, BLOCK, STEPS = 8, 4096, 16, 4


class DenseLayer(DynamicLayer):  # type: ignore[misc]
    """A layer whose room was taken beforehand; a token is written in place."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, room: int) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self._room = [torch.cat([part, torch.zeros_like(part[:, :, :1]).expand(-1, -1, room, -1)], 2) for part in (keys, values)]
        self._length = keys.shape[2]
        self.keys, self.values = self._view()

    def _view(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._room[0][:, :, : self._length], self._room[1][:, :, : self._length]

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        end = self._length + key_states.shape[2]
        for room, states in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, self._length : end] = states
        self._length = end
        self.keys, self.values = self._view()
        return self.keys, self.values


def main() -> None:
    options = parse(__doc__ or "")
    model = load(options.model, options.dtype)
    room = (options.pairs + 2) * STEPS
    functions = {
        "dynamic": plain_steps(reference(model), filled_cache(model, None)),
        "dense": plain_steps(reference(model), filled_cache(model, room)),
        "scattered": engine_steps(filled_engine(model, room, scattered=True)),
        "consecutive": engine_steps(filled_engine(model, room, scattered=False)),
    }
    seconds = interleaved(functions, options.pairs)
    results = {
        f"{ours}_to_{baseline}": ratios(seconds, ours, baseline)
        for ours in ("scattered", "consecutive")
        for baseline in ("dynamic", "dense")
    }
    report(
        "decode",
        options,
        {"ratios": results, "median_ms_a_step": {name: value / STEPS for name, value in median_ms(seconds).items()}},
        sequences=SEQUENCES,
        context=CONTEXT,
        block_size=BLOCK,
        baseline="dynamic: transformers, sdpa, DynamicCache; dense: the same, cache written in place",
        cache_state="filled with random KV; one batch of 8 for all four",
    )


def plain_steps(network: Any, cache: DynamicCache) -> Callable[[int], None]:
    """Greedy steps of transformers on a filled cache."""
    name = "cache" if "cache" in inspect.signature(type(network).forward).parameters else "past_key_values"  # renamed in 5.2x
    tokens = torch.arange(SEQUENCES)[:, None]

    @torch.inference_mode()
    def steps(_number: int) -> None:
        nonlocal tokens
        for _ in range(STEPS):
            position = torch.full((SEQUENCES, 1), cache.get_seq_length())
            logits = network(input_ids=tokens, position_ids=position, use_cache=True, **{name: cache}).logits
            tokens = logits[:, -1:].argmax(-1)

    return steps


def filled_cache(model: Model, room: int | None) -> DynamicCache:
    """A DynamicCache with random KV of every sequence; with ``room`` tokens to come, one that is written in place."""
    cache = DynamicCache()
    for layer in range(model.shape.layers):
        keys, values = (
            torch.randn(SEQUENCES, model.shape.kv_heads, CONTEXT, model.shape.head_dim, dtype=model.shape.dtype) for _ in range(2)
        )
        if room is None:
            cache.update(keys, values, layer)
        else:
            cache.layers.append(DenseLayer(keys, values, room))
    return cache


def filled_engine(model: Model, room: int, scattered: bool) -> Engine:
    """An engine in mid-generation: every sequence has its context in the pool, its blocks in order or at random places."""
    each = CONTEXT // BLOCK
    growth = ceil_div(room, BLOCK) + 1
    made = engine(model, SEQUENCES * (each + growth), block_size=BLOCK)
    made.store.device.normal_()
    blocks = made.pool.allocate(SEQUENCES * each)
    if scattered:
        random.Random(0).shuffle(blocks)
    for number in range(SEQUENCES):
        sequence = Sequence(str(number), [0] * CONTEXT + [number], CONTEXT, room + 2, KeyChain(BLOCK, bytes(32)), KeyChain(256, bytes(32)))
        sequence.block_table = blocks[number * each : (number + 1) * each]
        sequence.computed, sequence.cached_blocks = CONTEXT, each
        made.scheduler.running.append(sequence)
    return made


def engine_steps(made: Engine) -> Callable[[int], float]:
    """Whole engine steps: scheduling, attention, sampling, delivery."""

    def steps(_number: int) -> float:
        begin = time.perf_counter()
        for _ in range(STEPS):
            made.step()
        return time.perf_counter() - begin

    return steps


if __name__ == "__main__":
    main()
