"""What is not plain full attention is refused by name, and by a probe where a name says nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    Mamba2Config,
    MistralConfig,
    Qwen2Config,
)

from kvbench.errors import UsageError
from kvbench.runners.engine.model import attention, model
from kvbench.runners.engine.model.model import count_parameters, load_model
from tests.runners.engine.reference import DEVICE, SIZES, save_model

FULL = ["full_attention", "full_attention"]
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "original_max_position_embeddings": 32, "factor": 16.0}
BLOOM = BloomConfig(vocab_size=512, hidden_size=64, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None)
MAMBA = Mamba2Config(vocab_size=512, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, state_size=8, n_groups=1)
GEMMA2 = Gemma2Config(**SIZES, layer_types=FULL)
GEMMA3 = Gemma3TextConfig(**SIZES, layer_types=["sliding_attention", "full_attention"])
GPT_OSS = GptOssConfig(**SIZES, num_local_experts=2, num_experts_per_tok=1, layer_types=FULL)

REFUSED = {
    "BloomForCausalLM": BLOOM,
    "Gemma2ForCausalLM": GEMMA2,
    "Gemma3ForCausalLM": GEMMA3,
    "GptOssForCausalLM": GPT_OSS,
    "Mamba2ForCausalLM": MAMBA,
}


def refusal(folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        load_model(str(folder), DEVICE, torch.float32)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"--model {folder}: ")
    return message


@pytest.mark.parametrize("architecture", REFUSED)
def test_an_architecture_that_is_not_allowed_is_refused_by_name(architecture: str, tmp_path: Path) -> None:
    config = REFUSED[architecture]
    config.architectures = [architecture]
    config.save_pretrained(tmp_path)
    assert f"{architecture} is refused" in refusal(tmp_path)
    with pytest.raises(UsageError, match=architecture):
        count_parameters(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (MistralConfig(**SIZES, sliding_window=128), "MistralForCausalLM with a sliding window is refused"),
        (Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=128, max_window_layers=1), "sliding_attention is refused"),
        (LlamaConfig(**SIZES, quantization_config={"quant_method": "gptq", "bits": 4}), "quantised weights are refused"),
        (LlamaConfig(**SIZES, rope_scaling=LONGROPE), "LlamaForCausalLM with longrope is refused"),
    ],
    ids=["mistral", "qwen2", "quantised", "longrope"],
)
def test_an_allowed_architecture_that_is_not_plain_is_refused(config: Any, words: str, tmp_path: Path) -> None:
    config.architectures = [{"mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}[config.model_type]]
    config.save_pretrained(tmp_path)
    assert words in refusal(tmp_path)


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("BloomForCausalLM", "its 2 layers made 0 attention calls"),
        ("Mamba2ForCausalLM", "its 2 layers made 0 attention calls"),
        ("Gemma2ForCausalLM", "it passes softcap"),
        ("Gemma3ForCausalLM", "it passes sliding_window"),
        ("GptOssForCausalLM", "it passes s_aux"),
    ],
)
def test_the_probe_refuses_what_the_list_let_through(
    architecture: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_refuse", lambda name, config: None)
    monkeypatch.setattr(model, "HARMLESS", model.HARMLESS | {"output_router_logits"})  # gpt-oss passes it too, and only the first is named
    save_model(REFUSED[architecture], tmp_path)
    assert f"{architecture} is refused: {words}" in refusal(tmp_path)


@pytest.mark.parametrize("kv_heads", [3, 8])
def test_heads_that_do_not_share_kv_heads_evenly_are_refused(kv_heads: int, tmp_path: Path) -> None:
    save_model(LlamaConfig(**{**SIZES, "num_key_value_heads": kv_heads}), tmp_path)
    assert f"LlamaForCausalLM is refused: its 4 query heads do not share its {kv_heads} KV heads evenly" in refusal(tmp_path)


def test_the_self_test_of_the_private_kernel_notices_each_way_it_can_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    check = attention.has_log_sum_exp.__wrapped__
    assert check() is True

    def gone(*_: object) -> None:
        raise AttributeError

    monkeypatch.setattr(attention, "_flash", gone)
    assert check() is False


def test_no_such_folder_is_one_line(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "nowhere")


def test_a_folder_without_weights_is_one_line(tmp_path: Path) -> None:
    config = LlamaConfig(**SIZES)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(tmp_path)
    assert "its weights cannot be loaded" in refusal(tmp_path)


def test_a_folder_without_a_config_is_one_line(tmp_path: Path) -> None:
    assert "its config cannot be read" in refusal(tmp_path)


def test_a_named_shape_has_the_same_weights_each_time() -> None:
    one = load_model("tiny", DEVICE, torch.float32)
    torch.manual_seed(99)
    other = load_model("tiny", DEVICE, torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(one.network.parameters(), other.network.parameters(), strict=True))
    assert one.parameters == count_parameters("tiny")
    assert one.shape.bytes_per_token == 2 * 8 * 2 * 64 * 4
