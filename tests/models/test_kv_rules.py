"""KV bytes per token: known sizes of published models, what transformers' own caches keep, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import UsageError
from kvbench.models.kv_rules import ALTERNATING, EVERY_HEAD, HEAD_DIM, LATENT, NO_GROUPS_UNLESS_SAID, PLAIN, KVSize, rule_for
from kvbench.models.kv_size import kv_size, read_vocab

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_size": 2880,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}
GEMMA3_12B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "hidden_size": 3840,
        "sliding_window": 1024,
    },
    "vision_config": {"num_hidden_layers": 27},
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "hidden_size": 7168,
}
MISTRAL_V01 = {**LLAMA, "model_type": "mistral", "sliding_window": 4096}
QWEN25 = {**LLAMA, "model_type": "qwen2", "sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28}
LONG = 100_000


def folder(path: Path, config: Any) -> str:
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def size(path: Path, config: Any, dtype: str = "auto", longest: int = LONG) -> KVSize:
    return kv_size(folder(path, config), dtype, longest)


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


# known sizes


@pytest.mark.parametrize(("model", "expected"), [("qwen2.5-1.5b", 28_672), ("qwen2.5-0.5b", 12_288), ("llama-3.1-8b", 131_072)])
def test_named_shapes(model: str, expected: int) -> None:
    assert kv_size(model, "auto", LONG).bytes_per_token == expected


def test_the_working_set_of_the_published_measurement_is_1_34_gib() -> None:
    assert kv_size("qwen2.5-1.5b", "bfloat16", LONG).gib(50_110) == pytest.approx(1.338, abs=5e-4)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, 131_072),
        (without(LLAMA, "num_key_value_heads"), 4 * 131_072),
        (QWEN25, 131_072),
        (DEEPSEEK_V3, 61 * (512 + 64) * 2),
        (GPT_OSS, 2 * 24 * 8 * 64 * 2),
        (GEMMA3_12B, 2 * 48 * 8 * 256 * 2),
    ],
    ids=["llama", "no groups", "window not used", "latent", "alternating", "alternating, text part, head dimension not said"],
)
def test_published_configurations(tmp_path: Path, config: dict[str, Any], expected: int) -> None:
    assert size(tmp_path, config).bytes_per_token == expected


@pytest.mark.parametrize(("dtype", "factor"), [("float32", 2.0), ("bfloat16", 1.0), ("float16", 1.0), ("fp8", 0.5)])
def test_the_type_of_the_kv(tmp_path: Path, dtype: str, factor: float) -> None:
    assert size(tmp_path, LLAMA, dtype).bytes_per_token == 131_072 * factor


@pytest.mark.parametrize(
    "quantised",
    [
        {"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}},
        {"quantization_config": {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}},
        {"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "fp8"}},
    ],
)
def test_a_checkpoint_with_kv_scales_is_kept_in_8_bits_unless_another_type_is_asked_for(tmp_path: Path, quantised: dict[str, Any]) -> None:
    assert size(tmp_path, LLAMA | quantised).bytes_per_token == 131_072 // 2
    assert size(tmp_path, LLAMA | quantised, "bfloat16").bytes_per_token == 131_072


def test_quantised_weights_alone_leave_the_kv_as_it_is(tmp_path: Path) -> None:
    assert size(tmp_path, LLAMA | {"quantization_config": {"quant_method": "awq", "bits": 4}}).bytes_per_token == 131_072


def test_the_vocabulary_and_the_longest_sequence(tmp_path: Path) -> None:
    assert size(tmp_path, LLAMA).max_tokens == 131_072
    assert read_vocab(folder(tmp_path, LLAMA)) == 128_256
    assert read_vocab(folder(tmp_path, GEMMA3_12B)) is None


# windows


def test_a_window_that_covers_the_longest_request_is_as_good_as_none(tmp_path: Path) -> None:
    assert size(tmp_path, MISTRAL_V01, longest=4096) == size(tmp_path, without(MISTRAL_V01, "sliding_window"), longest=4096)
    with pytest.raises(UsageError, match="looks back 4,096 tokens only, and a request has 4,097"):
        size(tmp_path, MISTRAL_V01, longest=4097)


@pytest.mark.parametrize("config", [GPT_OSS, GEMMA3_12B], ids=["said", "by its type"])
def test_models_of_which_some_layers_have_a_window_say_what_their_size_means(tmp_path: Path, config: dict[str, Any]) -> None:
    [note] = size(tmp_path, config).notes
    assert "--disable-hybrid-kv-cache-manager" in note
    assert size(tmp_path, config, longest=100).notes == ()


def test_chunked_layers_count_as_windowed(tmp_path: Path) -> None:
    llama4 = {
        **LLAMA,
        "model_type": "llama4_text",
        "attention_chunk_size": 8192,
        "layer_types": ["chunked_attention"] * 31 + ["full_attention"],
    }
    [note] = size(tmp_path, {"model_type": "llama4", "text_config": llama4}).notes
    assert "8,192" in note


# refused


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "mamba", "num_hidden_layers": 4}, "state instead of KV (mamba)"),
        ({**LLAMA, "model_type": "jamba", "mamba_d_state": 16}, "state instead of KV (jamba)"),
        ({**LLAMA, "model_type": "falcon_h1", "mamba_d_ssm": 16}, "state instead of KV (mamba_d_ssm)"),
        ({**LLAMA, "model_type": "qwen3_next", "full_attention_interval": 4}, "(full_attention_interval)"),
        ({**LLAMA, "model_type": "qwen3_next", "layer_types": ["linear_attention", "full_attention"]}, "(linear_attention)"),
        ({**LLAMA, "model_type": "t5", "is_encoder_decoder": True}, "t5 has an encoder"),
        ({**DEEPSEEK_V3, "model_type": "deepseek_v32", "index_head_dim": 128}, "keeps an index for sparse attention"),
        ({**LLAMA, "model_type": "gemma3n_text", "num_kv_shared_layers": 15}, "nobody looked at how gemma3n_text keeps its KV"),
        ({**LLAMA, "quantization_config": {"kv_cache_quant_algo": "NVFP4"}}, "KV has NVFP4 bits"),
        ({**LLAMA, "quantization_config": {"kv_cache_scheme": {"type": "int"}}}, "an unknown number of bits"),
        (without(LLAMA, "num_hidden_layers"), "no usable num_hidden_layers (None)"),
        (without(LLAMA, "hidden_size"), "no usable hidden_size (None)"),
        (without(LLAMA, "model_type"), "no usable model_type (None)"),
        ({**LLAMA, "num_attention_heads": "many"}, "no usable num_attention_heads ('many')"),
        ({**LLAMA, "head_dim": 0}, "no usable head_dim (0)"),
        ({**LLAMA, "hidden_size": 100}, "hidden_size 100 is not a multiple of its 32 heads"),
        ({**LLAMA, "num_key_value_heads": 64}, "32 heads in groups of 64 KV heads"),
        (without(MISTRAL_V01, "num_key_value_heads", "sliding_window"), "no usable num_key_value_heads (None)"),
        ({**LLAMA, "layer_types": 5}, "no usable layer_types (5)"),
        ({**LLAMA, "layer_types": "full_attention"}, "no usable layer_types ('full_attention')"),
        (without(DEEPSEEK_V3, "qk_rope_head_dim"), "no usable qk_rope_head_dim (None)"),
        ([1], "is not an object"),
    ],
)
def test_what_has_no_rule_or_no_sizes_is_refused_in_one_line(tmp_path: Path, config: Any, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        size(tmp_path, config)
    message = str(error.value)
    assert reason in message
    assert message.startswith("--model ")
    assert "\n" not in message


def test_a_folder_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"its config\.json cannot be read \(No such file"):
        kv_size(str(tmp_path), "auto", LONG)


# transformers


def test_the_kinds_do_not_overlap() -> None:
    assert not PLAIN & LATENT
    assert {*HEAD_DIM, *EVERY_HEAD, *NO_GROUPS_UNLESS_SAID, *ALTERNATING} <= PLAIN


def published(kind: str) -> dict[str, Any]:
    """What transformers writes for a model of this type, its head dimension left out."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    sizes = {"hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3}
    config: Any = CONFIG_MAPPING[kind](**sizes)
    return dict(config.to_dict())


@pytest.mark.parametrize("kind", sorted(PLAIN - EVERY_HEAD))
def test_kv_heads_that_are_left_out_are_transformers_default_or_refused(kind: str) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    sizes = {"hidden_size": 1600, "num_attention_heads": 20, "num_hidden_layers": 3}
    config: Any = CONFIG_MAPPING[kind](**sizes)
    if kind in NO_GROUPS_UNLESS_SAID:
        said = rule_for({**config.to_dict(), **sizes, "num_key_value_heads": None}, kind, 2, longest=1)
        assert said == rule_for({**config.to_dict(), **sizes}, kind, 2, longest=1)
    else:
        with pytest.raises(UsageError, match="no usable num_key_value_heads"):
            rule_for({**without(config.to_dict(), "num_key_value_heads"), **sizes}, kind, 2, longest=1)


FLAT = ("qwen2_vl", "qwen2_5_vl")
"""The only types whose published configurations have the text model's sizes at the top, and transformers' classes do not."""


@pytest.mark.parametrize("kind", sorted(PLAIN - {*FLAT}))
def test_sizes_agree_with_transformers_own_configuration(kind: str) -> None:
    config = published(kind)
    heads = 4 if kind in EVERY_HEAD else 2
    head_dim = config.get("head_dim") or 96 // 4
    for given in (config, without(config, "head_dim")):
        assert rule_for(given, kind, 2, longest=1).bytes_per_token == 2 * 3 * heads * head_dim * 2


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "gpt_oss", "gpt_neox", "starcoder2"])
def test_the_rule_is_what_transformers_cache_keeps(kind: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    small = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 32}
    config: Any = CONFIG_MAPPING[kind](**small, vocab_size=50, pad_token_id=0, num_local_experts=2, num_experts_per_tok=1)
    model: Any = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        cache = model(input_ids=torch.arange(10)[None], use_cache=True).past_key_values
    kept = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert rule_for(config.to_dict(), kind, 4, longest=10).bytes_per_token * 10 == kept
