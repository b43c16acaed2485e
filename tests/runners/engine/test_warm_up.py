"""The warm-up runs whatever the workload may ask for, and nothing longer than the model was made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig

from kvbench.runners.engine.backend import EngineBackend
from kvbench.runners.engine.engine import Engine
from tests.configs import loaded
from tests.runners.engine.reference import SIZES, save_model


def warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, prompt: int, **options: Any) -> list[tuple[int, int]]:
    """Prompt and output tokens of the requests of a warm-up, of a model made for ``limit`` tokens."""
    folder = save_model(LlamaConfig(**{**SIZES, "max_position_embeddings": limit}), tmp_path / "model")
    asked: list[tuple[int, int]] = []
    submit = Engine.submit

    def noted(engine: Engine, request_id: str, tokens: list[int], max_tokens: int) -> Any:
        asked.append((len(tokens), max_tokens))
        return submit(engine, request_id, tokens, max_tokens)

    monkeypatch.setattr(Engine, "submit", noted)
    backend = EngineBackend(loaded(None, {"model": str(folder), "device": "cpu", **options}))
    try:
        backend.check("longest", prompt, limit - prompt)
        backend.warm_up(prompt)
    finally:
        backend.close()
    return asked


@pytest.mark.parametrize(
    ("limit", "prompt", "warmed"),
    [
        (64, 60, (60, 4)),
        (64, 61, (60, 4)),
        (64, 62, (60, 4)),
        (64, 63, (60, 4)),
        (64, 1, (1, 4)),
        (5, 4, (1, 4)),
        (4, 3, (1, 3)),
        (2, 1, (1, 1)),
        (512, 400, (128, 4)),  # a whole step and 64 tokens
    ],
)
def test_a_prompt_near_the_models_limit_is_warmed_up_within_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, prompt: int, warmed: tuple[int, int]
) -> None:
    asked = warm_up(tmp_path, monkeypatch, limit, prompt, max_batch_tokens=64, concurrency=3)
    assert asked == [warmed, *[(1, warmed[1])] * 2]
