"""KV bytes per token: from a number, a named shape, or a Hugging Face folder's ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvbench.errors import UsageError
from kvbench.models.config import read_config, text_part
from kvbench.models.kv_rules import WAY_OUT, KVSize, rule_for

ELEMENT_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}
SERVED = 2
"""Bytes of an element unless something says otherwise: vLLM serves float32 checkpoints in 16 bits too."""


def kv_size(model: str, dtype: str, longest: int) -> KVSize:
    """The KV of a model's token.

    ``model``: a folder or a named shape. ``dtype``: of the KV; ``auto``: 16 bits, or 8 where the checkpoint's KV scales say so.
    ``longest``: tokens of the longest request.

    Raises ``UsageError``: the model's configuration cannot be used, says too little, or its KV is of a kind that has no rule.
    """
    whole = read_config(model)
    text = text_part(whole)
    rule = rule_for(text, model, _element_bytes(dtype, whole, model), longest)
    return replace(rule, max_tokens=_count(text, "max_position_embeddings"))


def read_vocab(model: str) -> int | None:
    """How many token ids a model knows, ``None`` if it does not say; ``UsageError``: its configuration cannot be read."""
    return _count(text_part(read_config(model)), "vocab_size")


def _element_bytes(dtype: str, config: Mapping[str, Any], model: str) -> int:
    """Of the type asked for, or of the one that the checkpoint was quantised to."""
    if dtype != "auto":
        return ELEMENT_BYTES[dtype]
    bits = _checkpoint_bits(config)
    if bits is None:
        return SERVED
    if bits != 8:
        raise UsageError(f"--model {model}: its checkpoint says that KV has {bits} bits, which has no rule; {WAY_OUT}, or --kv-dtype")
    return 1


def _checkpoint_bits(config: Mapping[str, Any]) -> int | str | None:
    """Bits of the KV that the checkpoint brings scales for (compressed-tensors, ModelOpt); ``None``: none."""
    outer = config.get("quantization_config") or config.get("compression_config") or {}
    parts = [outer, outer.get("quantization")] if isinstance(outer, dict) else []
    for part in parts:
        scheme = (part.get("kv_cache_scheme") or part.get("kv_cache_quant_algo")) if isinstance(part, dict) else None
        if isinstance(scheme, dict):
            bits = scheme.get("num_bits")
            return bits if isinstance(bits, int) else "an unknown number of"
        if scheme:
            return 8 if str(scheme).lower().startswith("fp8") else str(scheme)
    return None


def _count(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and value > 0 else None
