"""What the engine is measured by: plain transformers on the same weights, and an engine that notes what it computes."""

from __future__ import annotations

import inspect
import os
import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache

from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.engine_config import EngineConfig
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.transfer import Transfer, make_transfer
from kvbench.runners.engine.model.attention import PagedStep
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.scheduling import sequence as engine_sequence
from kvbench.runners.engine.scheduling.recovery import Recompute
from kvbench.runners.engine.scheduling.scheduler import Work

DEVICE = torch.device(os.environ.get("KVBENCH_TEST_DEVICE", "cpu"))
LOGITS = 1e-5
"""Logits further apart than this are different; float64 rounding is nine orders below."""
KV = 1e-9
CHUNK = 16
JUNK = 1e3
"""Written to blocks that nobody may read: finite, as a real pool's stale content is."""

Prompt = tuple[list[int], int]
"""A prompt and how many tokens to generate."""

SIZES = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}


def save_model(config: Any, folder: Path) -> Path:
    """Seeded random weights for a config, as a Hugging Face folder."""
    transformers.logging.disable_progress_bar()
    with torch.random.fork_rng():
        torch.manual_seed(7)
        network = AutoModelForCausalLM.from_config(config, dtype=torch.float64)
        with torch.no_grad():
            for weight in network.parameters():
                if weight.ndim == 1:  # biases and norms, which start as 0 and 1
                    weight += 0.2 * torch.randn_like(weight)
        network.save_pretrained(folder)
    return folder


def draw(seed: int, length: int, vocab: int = 512) -> list[int]:
    """Random tokens."""
    return random.Random(seed).choices(range(vocab), k=length)


@dataclass
class Answer:
    """What transformers says to a prompt: its tokens, the logits behind each, and the cache it is left with."""

    tokens: list[int]
    logits: torch.Tensor
    keys: list[torch.Tensor]
    """By layer ``[tokens, kv_heads, head_dim]``; the last token has none."""
    values: list[torch.Tensor]


class Reference:
    """Greedy generation by plain transformers, one request at a time, with ``sdpa`` and a ``DynamicCache``."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float64) -> None:
        self.network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").to(DEVICE).eval()
        self._answers: dict[tuple[tuple[int, ...], int], Answer] = {}

    def answer(self, prompt: Sequence[int], max_tokens: int) -> Answer:
        key = (tuple(prompt), max_tokens)
        if key not in self._answers:
            self._answers[key] = self._generate(list(prompt), max_tokens)
        return self._answers[key]

    @torch.inference_mode()
    def _generate(self, prompt: list[int], max_tokens: int) -> Answer:
        cache = DynamicCache()
        named = {"cache" if "cache" in inspect.signature(self.network.forward).parameters else "past_key_values": cache}  # by version
        tokens: list[int] = []
        logits = []
        inputs = prompt
        for _ in range(max_tokens):
            logits.append(self.network(input_ids=torch.tensor([inputs], device=DEVICE), **named).logits[0, -1])
            inputs = [int(logits[-1].argmax())]
            tokens += inputs
        keys = [layer.keys[0].transpose(0, 1) for layer in cache.layers]
        values = [layer.values[0].transpose(0, 1) for layer in cache.layers]
        return Answer(tokens, torch.stack(logits), keys, values)


@dataclass(frozen=True, slots=True)
class LoggedModel(Model):
    """A model that keeps what its last steps returned."""

    log: list[torch.Tensor] = field(default_factory=list)

    def logits(self, tokens: list[int], positions: list[int], step: PagedStep, rows: list[int]) -> torch.Tensor:
        logits = Model.logits(self, tokens, positions, step, rows)
        self.log.append(logits.clone())
        return logits


class WatchedEngine(Engine):
    """Notes the logits behind each delivered token, each finished sequence's K and V, and the counts of each step."""

    def __init__(
        self,
        model: Model,
        blocks: int = 64,
        block_size: int = 4,
        budget: int = 2048,
        host: int | None = None,
        chunk: int = CHUNK,
        recovery: Recompute | None = None,
        transfer: Callable[[KVStore], Transfer] = make_transfer,
        **policies: Any,
    ) -> None:
        self.logged = LoggedModel(*(getattr(model, part.name) for part in fields(Model)))
        config = EngineConfig(blocks, block_size, budget, host, chunk, **policies)
        super().__init__(self.logged, config, recovery=recovery, transfer=transfer)
        self.logits_of: dict[engine_sequence.Sequence, list[torch.Tensor]] = defaultdict(list)
        self.kv_of: dict[engine_sequence.Sequence, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        self.batches: list[list[int]] = []
        """Of each step, the tokens computed of each sequence."""
        self.forced: dict[engine_sequence.Sequence, list[int]] = {}
        """Tokens to deliver instead of the sampled ones."""

    def _compute(self, batch: list[Work]) -> dict[int, int]:
        chosen = super()._compute(batch)
        if batch:
            self.batches.append([work.count for work in batch])
        for row, sampled in enumerate(work.sampled for work in batch if work.sampled):
            for sequence in sampled:
                self.logits_of[sequence].append(self.logged.log[-1][row])
                if sequence in self.forced:
                    chosen[id(sequence)] = self.forced[sequence][sequence.output_tokens]
        return chosen

    def _finish(self, sequence: engine_sequence.Sequence) -> None:
        self.kv_of[sequence] = [self.kv_by_address(sequence, layer) for layer in range(self.store.shape.layers)]
        super()._finish(sequence)

    def kv_by_address(self, sequence: engine_sequence.Sequence, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of every computed token, by the formula of the article on paging alone: ``BlockTable[j // B] · B + j % B``."""
        size = self.config.block_size
        slots = [sequence.block_table[j // size] * size + j % size for j in range(sequence.computed)]
        keys, values = self.store.tokens(layer)
        return keys[slots].clone(), values[slots].clone()

    def run(self, prompts: Sequence[Prompt], concurrency: int = 1, force: Reference | None = None) -> list[engine_sequence.Sequence]:
        """Run the prompts in a closed loop; with ``force``, deliver the reference's tokens whatever is sampled."""
        queue, in_flight = deque(prompts), 0
        sequences: list[engine_sequence.Sequence] = []
        while queue or in_flight:
            while queue and in_flight < concurrency:
                prompt, max_tokens = queue.popleft()
                sequences.append(self.submit(str(len(sequences)), prompt, max_tokens))
                if force is not None:
                    self.forced[sequences[-1]] = force.answer(prompt, max_tokens).tokens
                in_flight += 1
            in_flight -= len(self.step())
        self.drain()
        return sequences

    def forget_device(self, keep: int = 0) -> None:
        """Let others use every free block but the ``keep`` last in the order of reuse: their keys go, and junk is left in them."""
        blocks = self.pool.allocate(self.pool.free_blocks - keep)
        self.store.device[:, :, blocks] = JUNK
        self.pool.release(blocks)


def prompt_of(sequence: engine_sequence.Sequence) -> list[int]:
    return sequence.tokens[: sequence.prompt_tokens]


def difference(reference: Reference, engine: WatchedEngine, sequences: Sequence[engine_sequence.Sequence]) -> float:
    """The largest distance between the engine's logits and transformers'; infinite if a token differs, or a number is not one."""
    worst = 0.0
    for sequence in sequences:
        answer = reference.answer(prompt_of(sequence), sequence.max_tokens)
        if sequence.tokens[sequence.prompt_tokens :] != answer.tokens:
            return inf
        distance = float((torch.stack(engine.logits_of[sequence]) - answer.logits).abs().max())
        worst = max(worst, distance if distance == distance else inf)
    return worst


def kv_difference(reference: Reference, engine: WatchedEngine, sequences: Sequence[engine_sequence.Sequence]) -> float:
    """The largest distance between K and V in the pool's slots and those in transformers' ``DynamicCache``."""
    worst = 0.0
    for sequence in sequences:
        answer = reference.answer(prompt_of(sequence), sequence.max_tokens)
        for (keys, values), theirs_k, theirs_v in zip(engine.kv_of[sequence], answer.keys, answer.values, strict=True):
            assert keys.shape == theirs_k.shape
            worst = max(worst, float((keys - theirs_k).abs().max()), float((values - theirs_v).abs().max()))
    return worst


def assert_equal(reference: Reference, engine: WatchedEngine, sequences: Sequence[engine_sequence.Sequence]) -> None:
    """Tokens, logits, and K and V of every slot are transformers'."""
    assert sequences
    assert difference(reference, engine, sequences) < LOGITS
    assert kv_difference(reference, engine, sequences) < KV
    assert engine.pool.free_blocks == engine.pool.num_blocks
