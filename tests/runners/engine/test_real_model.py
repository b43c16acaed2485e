"""A real model (SmolLM2-135M): its logits and its words are transformers', whatever tier the prompt comes from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from kvbench.runners.engine.model.model import Model, load_model
from tests.runners.engine.reference import Reference, WatchedEngine, difference

FOLDER = os.environ.get("KVBENCH_SMOLLM2")
pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(
        FOLDER is None,
        reason="set KVBENCH_SMOLLM2 to a folder with SmolLM2-135M (scripts/make_smollm2.py makes one)",
    ),
]
SEEN = 4e-5
"""The largest difference of float32 logits from transformers' seen here (they reach 30); 100 times that passes."""

TEXT = """\
A request that is stopped keeps its text, because the tokens that were read and the tokens that were written are only numbers in a list.
What it loses is the state that was computed from them. To go on, the engine must either compute that state again, from the first token to
the last, or bring it back from wherever it was kept. The first costs time on the processor that everybody wants. The second costs memory
that nobody else may use meanwhile, and the time of a copy. Which of the two is cheaper depends on how long the text is, how fast the
processor is, and how wide the road between the two memories. The person who waits for the answer sees neither: for them, a sentence stops
in the middle and then, after a while, goes on as if nothing had happened. A good measurement tells the three parts of that pause apart,
and a good engine makes it short. Whoever reads the same document twice should not pay for it twice, and whoever sells the second reading
should be able to say what it saved. That is all this text is about; it is here because a model that has read a little English answers it
with numbers worth comparing.
"""


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(FOLDER or "")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load_model(str(folder), torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder, torch.float32)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_logits_are_transformers_for_every_tier(model: Model, reference: Reference, tokenizer: Tokenizer) -> None:
    text = tokenizer.encode(TEXT, add_special_tokens=False).ids
    prompts = [(text[:200], 4), (text[20:170], 4)]
    engine = WatchedEngine(model, blocks=64, block_size=16, budget=96, host=1024, chunk=64)
    cold = engine.run(prompts, concurrency=2, force=reference)
    device = engine.run(prompts[:1], force=reference)
    engine.forget_device()
    host = engine.run(prompts[:1], force=reference)
    engine.forget_device(keep=5)  # 80 tokens: inside the second chunk
    mixed = engine.run(prompts[:1], force=reference)
    hits = [(sequence.device_hit, sequence.host_hit) for sequence in (*device, *host, *mixed)]
    assert hits == [(192, 0), (0, 192), (80, 112)]
    assert difference(reference, engine, [*cold, *device, *host, *mixed]) < 100 * SEEN

    engine.store.device.mul_(1.05)
    assert difference(reference, engine, engine.run(prompts[:1], force=reference)) > 100 * SEEN


def test_it_knows_the_capital_of_france(model: Model, reference: Reference, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("The capital of France is", add_special_tokens=False).ids
    [sequence] = WatchedEngine(model, blocks=8, block_size=4).run([(prompt, 8)])
    output = sequence.tokens[sequence.prompt_tokens :]
    assert tokenizer.decode(output).startswith(" Paris")
    assert output == reference.answer(prompt, 8).tokens
