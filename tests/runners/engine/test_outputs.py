"""The engine's tokens, logits, K and V are plain transformers', however the work is cut, cached and interrupted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.kv.transfer import Copy, Ticket
from kvbench.runners.engine.model import attention
from kvbench.runners.engine.model.model import ARCHITECTURES, Model, load_model
from kvbench.runners.engine.scheduling.recovery import Recompute
from kvbench.runners.engine.scheduling.sequence import Sequence
from tests.runners.engine.reference import CHUNK, DEVICE, SIZES, Reference, WatchedEngine, assert_equal, difference, draw, save_model

BLOCK_SIZES = (1, 4, 16)
BUDGETS = (1, 7, 16, 37, 2048)
FLOAT32_SEEN = 1.3e-5
"""The largest difference of float32 logits from transformers' seen under teacher forcing (logits reach 7); 100 times that passes."""

CONFIGS = {
    "LlamaForCausalLM": LlamaConfig,
    "MistralForCausalLM": MistralConfig,
    "Qwen2ForCausalLM": Qwen2Config,
    "Qwen3ForCausalLM": Qwen3Config,
}


def test_the_tiny_model_says_many_things(reference: Reference) -> None:
    # With a model that repeats itself, zeroed blocks and shifted positions would change nothing.
    assert len(set(reference.answer(draw(0, 20), 200).tokens)) >= 100


def test_the_reference_is_what_generate_gives(reference: Reference) -> None:
    prompt = draw(0, 20)
    inputs = torch.tensor([prompt], device=DEVICE)
    given = reference.network.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=50,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    answer = reference.answer(prompt, 50)
    assert given.sequences[0, 20:].tolist() == answer.tokens
    assert torch.allclose(torch.cat(given.logits), answer.logits.float(), atol=1e-5)  # it gives float32


def test_a_long_answer(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model)
    assert_equal(reference, engine, engine.run([(draw(0, 20), 200)]))


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("concurrency", [1, 8])
def test_every_block_size_and_budget(model: Model, reference: Reference, block_size: int, budget: int, concurrency: int) -> None:
    engine = WatchedEngine(model, 512 // block_size, block_size, budget, host=256)
    prompts = [(draw(length, length), 5) for length in (1, 2, 15, 16, 17, 33, 40, 41)]
    assert_equal(reference, engine, engine.run(prompts, concurrency))
    assert max(map(sum, engine.batches)) <= budget


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("tier", ["device", "host", "mixed"])
def test_hits_that_end_at_every_boundary(model: Model, reference: Reference, block_size: int, tier: str) -> None:
    for budget in (7, 2048):
        for cached in sorted({1, 2 * block_size - 1, 2 * block_size, 2 * block_size + 1, 31, 32, 33, 48, 49}):
            engine = WatchedEngine(model, 96 // block_size, block_size, budget, None if tier == "device" else 128)
            head = draw(3, cached)
            first = engine.run([(head, 1)])
            kept = 0
            if tier != "device":
                kept = cached // block_size // 2 if tier == "mixed" else 0
                engine.forget_device(keep=kept)
            second = engine.run([(head + draw(4, 9), 3), (head, 3)])
            assert_equal(reference, engine, first + second)
            on_device = kept * block_size if tier != "device" else cached // block_size * block_size
            in_host = 0 if tier == "device" else max(cached // CHUNK * CHUNK - on_device, 0)
            assert (second[0].device_hit, second[0].host_hit) == (on_device, in_host)


def test_two_prompts_that_are_written_in_long_runs_in_one_step(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model)
    prompts = [(draw(length, length), 3) for length in (attention.LONG_RUN + 6, attention.LONG_RUN + 9)]
    assert_equal(reference, engine, engine.run(prompts, concurrency=2))
    assert engine.batches[0] == [attention.LONG_RUN + 6, attention.LONG_RUN + 9]


def test_a_host_hit_may_start_inside_a_chunk(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = WatchedEngine(model, host=128)
    prompt = draw(5, 50)
    engine.run([(prompt, 1)])
    engine.forget_device(keep=5)
    loaded: list[int] = []
    load = engine.transfer.load

    def noted(copies: list[Copy]) -> Ticket:
        loaded.extend(block for copy in copies for block in copy.blocks)
        return load(copies)

    monkeypatch.setattr(engine.transfer, "load", noted)
    again = engine.run([(prompt, 4)])
    assert (again[0].device_hit, again[0].host_hit) == (20, 28)  # 20 is inside the chunk of 16 .. 31
    assert len(loaded) == 28 // 4  # what is on the device is not written again
    assert_equal(reference, engine, again)


def test_a_prompt_cached_whole_still_computes_its_last_block(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model)
    prompt = draw(6, 16)
    first, second = engine.run([(prompt, 3), (prompt, 3)])
    assert second.device_hit == 12
    assert_equal(reference, engine, [first, second])


def test_a_prompt_whole_in_the_host_tier_still_computes_its_last_block(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model, host=128)
    prompt = draw(6, 2 * CHUNK)
    first = engine.run([(prompt, 3)])
    engine.forget_device()
    again = engine.run([(prompt, 3)])
    assert (again[0].device_hit, again[0].host_hit) == (0, 2 * CHUNK - 4)  # blocks of 4
    assert_equal(reference, engine, first + again)


def test_hits_of_one_another_while_they_run(model: Model, reference: Reference) -> None:
    head = draw(7, 24)
    engine = WatchedEngine(model, budget=16)
    sequences = engine.run([(head + draw(seed, seed), 8) for seed in range(1, 9)], concurrency=3)
    assert sum(sequence.device_hit or 0 for sequence in sequences) > 24
    assert_equal(reference, engine, sequences)


def test_unlike_lengths_decode_in_padded_buckets(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    buckets: list[list[int]] = []
    like_lengths = attention.like_lengths

    def noted(spans: Iterable[attention.Span]) -> list[list[attention.Span]]:
        groups = like_lengths(spans)
        buckets.extend([span.end for span in group] for group in groups)
        return groups

    monkeypatch.setattr(attention, "like_lengths", noted)
    engine = WatchedEngine(model)
    lengths = (9, 11, 10, 12, 20, 47, 25, 22)  # within a bucket in another order than the rows
    sequences = engine.run([(draw(length, length), 12) for length in lengths], concurrency=8)
    assert any(len(set(bucket)) > 1 for bucket in buckets)  # padded and masked
    assert_equal(reference, engine, sequences)


@pytest.mark.parametrize("budget", [37, 2048])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_nan_in_slots_that_hold_no_token_reaches_no_output(model: Model, reference: Reference, block_size: int, budget: int) -> None:
    engine = WatchedEngine(model, 512 // block_size, block_size, budget)
    engine.store.device.fill_(float("nan"))
    sequences = engine.run([(draw(length, length), 12) for length in (9, 10, 11, 20, 22, 25, 40, 47)], concurrency=8)
    sequences += engine.run([(draw(47, 47), 3)])
    assert sequences[-1].device_hit
    assert_equal(reference, engine, sequences)


def test_prefill_and_decode_in_one_step(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model, budget=37)
    sequences = engine.run([(draw(length, length), 9) for length in (30, 5, 61, 44, 12, 70)], concurrency=3)
    assert any(1 in counts and max(counts) > 1 for counts in engine.batches)
    assert_equal(reference, engine, sequences)


class NotedRecompute(Recompute):
    """Recompute that notes how far its victims were."""

    def __init__(self) -> None:
        self.victims: list[tuple[int, int]] = []

    def preempt(self, sequence: Sequence, pool: BlockPool) -> None:
        self.victims.append((sequence.computed - sequence.prompt_tokens, sequence.output_tokens))
        super().preempt(sequence, pool)


@pytest.mark.parametrize("host", [None, 64])
def test_preemption_in_the_middle_of_decode(model: Model, reference: Reference, host: int | None) -> None:
    recovery = NotedRecompute()
    engine = WatchedEngine(model, blocks=10, host=host, recovery=recovery)
    sequences = engine.run([(draw(seed, 11), 20) for seed in range(3)], concurrency=3)
    assert any(delivered > 2 for _, delivered in recovery.victims)
    assert_equal(reference, engine, sequences)


@pytest.mark.parametrize("host", [None, 64])
def test_preemption_in_the_middle_of_a_chunked_prefill(model: Model, reference: Reference, host: int | None) -> None:
    recovery = NotedRecompute()
    engine = WatchedEngine(model, blocks=12, budget=7, host=host, recovery=recovery)
    sequences = engine.run([(draw(1, 15), 20), (draw(2, 32), 4)], concurrency=2)
    assert any(ahead < 0 and delivered == 0 for ahead, delivered in recovery.victims)
    assert_equal(reference, engine, sequences)


def test_without_the_log_sum_exp_kernel(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "has_log_sum_exp", lambda: False)
    for budget in (7, 37):
        engine = WatchedEngine(model, budget=budget)
        assert_equal(reference, engine, engine.run([(draw(length, length), 5) for length in (30, 41)], concurrency=2))


def configured(architecture: str, **more: Any) -> Any:
    return CONFIGS[architecture](**{**SIZES, "sliding_window": None, **more})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_allowed_architecture(architecture: str, tmp_path: Path) -> None:
    folder = save_model(configured(architecture, num_hidden_layers=4), tmp_path)
    model, reference = load_model(str(folder), DEVICE, torch.float64), Reference(folder)
    assert type(model.network).__name__ == architecture
    assert len(set(reference.answer(draw(0, 20), 200).tokens)) >= 100
    engine = WatchedEngine(model, blocks=24, budget=16, host=160)
    prompts = [(draw(length, length), 9) for length in (30, 5, 61, 44)]
    sequences = engine.run(prompts, concurrency=3)
    engine.forget_device(keep=3)
    sequences += engine.run(list(reversed(prompts)), concurrency=2)
    assert sum(sequence.host_hit or 0 for sequence in sequences) > 0
    assert_equal(reference, engine, sequences)


def test_float32_under_teacher_forcing(folder: Path) -> None:
    model, reference = load_model(str(folder), DEVICE, torch.float32), Reference(folder, torch.float32)
    engine = WatchedEngine(model, budget=37, host=256)
    prompts = [(draw(length, length), 30) for length in (30, 5, 61, 44)]
    sequences = engine.run(prompts, concurrency=3, force=reference)
    engine.forget_device(keep=3)
    sequences += engine.run(prompts, concurrency=1, force=reference)
    assert difference(reference, engine, sequences) < 100 * FLOAT32_SEEN
    engine.store.device.zero_()
    assert difference(reference, engine, engine.run(prompts[:1], force=reference)) > 100 * FLOAT32_SEEN
