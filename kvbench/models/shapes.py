"""Named model shapes: what ``--model NAME`` means. Sizes only; the weights are random, so nothing is downloaded.

The sizes of ``qwen2.5-*`` and ``llama-3.1-8b`` are those of the models' published ``config.json``; ``tiny`` is ours: small enough that two
cores read ten documents of 5,000 tokens in seconds, with grouped KV heads like its elders.
"""

from __future__ import annotations

from typing import Any

WEIGHT_SEED = 0

_QWEN = {
    "model_type": "qwen2",
    "num_key_value_heads": 2,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": _QWEN
    | {"hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4, "intermediate_size": 768, "vocab_size": 2048}
    # Ten times the usual spread: with 0.02 and tied embeddings a random model repeats two tokens for ever, whatever its KV holds.
    | {"initializer_range": 0.2},
    "qwen2.5-0.5b": _QWEN
    | {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "intermediate_size": 4864, "vocab_size": 151936}
    | {"max_position_embeddings": 32768},
    "qwen2.5-1.5b": _QWEN
    | {"hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12, "intermediate_size": 8960, "vocab_size": 151936},
    "llama-3.1-8b": {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
}


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, element_bytes: int) -> int:
    """Bytes of K and V one token keeps: 2 · layers · KV heads · head dimension · bytes an element (plain full attention)."""
    return 2 * layers * kv_heads * head_dim * element_bytes
