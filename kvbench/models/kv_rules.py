"""What a token's KV takes in a model, by how its layers attend: a rule for each kind, and a reason where there is none.

Which models attend in which way, and the head dimension of those whose configuration may leave it out, were read from transformers 5.24
and hold against what its caches keep (``tests/models/test_kv_rules.py``). What servers keep was read from vLLM 0.32
(``v1/kv_cache_interface.py``, ``v1/core/kv_cache_utils.py``). A kind that nobody looked at is refused: a wrong size would be believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kvbench.errors import UsageError
from kvbench.models.config import count_of
from kvbench.models.shapes import kv_bytes_per_token

WAY_OUT = "give --bytes-per-token N, if you know it"

# fmt: off
PLAIN = frozenset(
    {
        "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3",
        "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "phi", "phi3", "phimoe", "gemma", "gemma2", "gemma3_text", "granite",
        "granitemoe", "granitemoeshared", "olmo", "olmo2", "olmo3", "olmoe", "flex_olmo", "starcoder2", "stablelm", "cohere", "cohere2",
        "smollm3", "glm", "glm4", "glm4_moe", "ernie4_5", "ernie4_5_moe", "arcee", "apertus", "exaone4", "nemotron", "bitnet",
        "gpt_neox", "opt", "persimmon", "seed_oss", "llama4_text", "minimax_m2", "ministral3", "cwm", "gpt_oss",
    }
)
# fmt: on
"""Model types that keep K and V of every KV head."""

HEAD_DIM = MappingProxyType(
    dict.fromkeys(("gemma", "gemma2", "gemma3_text"), 256)
    | dict.fromkeys(("qwen3", "qwen3_vl_text", "glm", "glm4", "ernie4_5", "seed_oss"), 128)
    | dict.fromkeys(("llama4_text", "minimax_m2", "ministral3", "cwm"), 128)
    | {"gpt_oss": 64}
)
"""Of model types whose configuration may leave it out, and for which it is then not the hidden size ÷ heads."""

NO_GROUPS_UNLESS_SAID = frozenset(
    {"llama", "phi", "phi3", "granite", "granitemoe", "granitemoeshared", "olmo", "olmo2", "olmo3", "olmoe", "flex_olmo", "cohere"}
    | {"cohere2", "arcee", "apertus", "nemotron"}
)
"""Model types that have as many KV heads as heads where their configuration does not say; others have a number of their own then."""

EVERY_HEAD = frozenset({"gpt_neox", "opt", "persimmon"})
"""Model types that know no groups: whatever their configuration says, each head has a K and a V of its own."""

LATENT = frozenset({"deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"})
"""Model types with multi-head latent attention (MLA): K and V of a token are one compressed vector and one rotated key a layer."""

ALTERNATING = frozenset({"gemma2", "gemma3_text", "cohere2", "olmo3", "exaone4"})
"""Model types of which some layers have a window and others do not, also where ``layer_types`` is not said."""

WINDOWED = frozenset({"sliding_attention", "chunked_attention"})
STATE = ("mamba", "jamba", "zamba", "bamba", "ssm", "rwkv", "xlstm", "recurrent", "linear", "conv", "lightning", "hybrid", "interval")
"""Parts of the names by which configurations speak of layers that keep a state of fixed size instead of KV."""


@dataclass(frozen=True, slots=True)
class KVSize:
    """What a token's KV takes, the arithmetic in words, and what to know of it; the longest sequence the model was made for, if known."""

    bytes_per_token: int
    formula: str
    notes: tuple[str, ...] = ()
    max_tokens: int | None = None

    def gib(self, tokens: int) -> float:
        """What so many tokens take, in GiB."""
        return tokens * self.bytes_per_token / 2**30


def rule_for(config: dict[str, Any], model: str, element_bytes: int, longest: int) -> KVSize:
    """The KV of a token of this model.

    ``config``: the text model's part of its ``config.json``. ``model``: as the user named it, for messages. ``element_bytes``: of one
    number. ``longest``: tokens of the longest request: a window that covers it is as good as none.

    Raises ``UsageError``: the model keeps something else than KV by token, nobody looked at its kind, or a size is missing.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise UsageError(f"--model {model}: its config.json has no usable model_type ({kind!r})")
    types = config.get("layer_types") or []
    if not isinstance(types, list) or not all(isinstance(name, str) for name in types):
        raise UsageError(f"--model {model}: its config.json has no usable layer_types ({types!r})")
    if config.get("is_encoder_decoder"):
        raise _refused(model, f"{kind} has an encoder, whose keys and values do not grow with the prompt")
    if config.get("index_head_dim") is not None:
        raise _refused(model, f"{kind} keeps an index for sparse attention beside its KV, in a layout of the server's own")
    if state := _state_layers(config, kind):
        raise _refused(model, f"{kind} has layers that keep a state instead of KV ({state}), so its KV is no number of bytes a token")
    if kind in LATENT:
        return _latent(config, model, element_bytes)
    if kind not in PLAIN:
        raise _refused(model, f"nobody looked at how {kind} keeps its KV")
    return _heads(config, model, kind, element_bytes, _window_note(config, model, kind, longest))


def _heads(config: dict[str, Any], model: str, kind: str, element_bytes: int, notes: tuple[str, ...]) -> KVSize:
    """K and V of every KV head, in every layer."""
    layers, heads = count_of(config, model, "num_hidden_layers"), count_of(config, model, "num_attention_heads")
    kv_heads = _kv_heads(config, model, kind, heads)
    head_dim = HEAD_DIM.get(kind) if config.get("head_dim") is None else count_of(config, model, "head_dim")
    if head_dim is None:
        hidden = count_of(config, model, "hidden_size")
        if hidden % heads:
            raise _refused(model, f"its config.json has no head_dim, and hidden_size {hidden:,} is not a multiple of its {heads:,} heads")
        head_dim = hidden // heads
    formula = f"K and V, {layers} layers, {kv_heads} KV heads of {head_dim}, {element_bytes} B"
    return KVSize(kv_bytes_per_token(layers, kv_heads, head_dim, element_bytes), formula, notes)


def _kv_heads(config: dict[str, Any], model: str, kind: str, heads: int) -> int:
    """KV heads of a layer."""
    if kind in EVERY_HEAD or (kind in NO_GROUPS_UNLESS_SAID and config.get("num_key_value_heads") is None):
        return heads
    kv_heads = count_of(config, model, "num_key_value_heads")
    if heads % kv_heads:
        raise _refused(model, f"its config.json says {heads:,} heads in groups of {kv_heads:,} KV heads, which does not come out even")
    return kv_heads


def _latent(config: dict[str, Any], model: str, element_bytes: int) -> KVSize:
    """One latent vector and one rotated key a layer; there is no V beside."""
    layers, rank, rope = (count_of(config, model, name) for name in ("num_hidden_layers", "kv_lora_rank", "qk_rope_head_dim"))
    formula = f"latent KV (MLA), {layers} layers, {rank} + {rope}, {element_bytes} B"
    return KVSize(layers * (rank + rope) * element_bytes, formula)


def _window_note(config: dict[str, Any], model: str, kind: str, longest: int) -> tuple[str, ...]:
    """What the windows of a model mean for its KV; nothing where no window is shorter than a request."""
    window, some = _window(config, kind)
    if window is None or window >= longest:
        return ()
    if not some:
        raise _refused(
            model, f"every layer looks back {window:,} tokens only, and a request has {longest:,}: what it keeps is not its length"
        )
    return (
        f"some layers look back {window:,} tokens only; counted as if every layer kept every token, as vLLM does with "
        "--disable-hybrid-kv-cache-manager. Without it the server keeps less, and what hits follows other rules.",
    )


def _window(config: dict[str, Any], kind: str) -> tuple[int | None, bool]:
    """How far windowed layers look back, ``None`` without any; and whether there are layers without a window."""
    layers = list(config.get("layer_types") or [])
    window = config.get("attention_chunk_size") if "chunked_attention" in layers or kind == "llama4_text" else config.get("sliding_window")
    if not isinstance(window, int) or window < 1 or config.get("use_sliding_window") is False:
        return None, True
    if layers:
        return (window if WINDOWED & set(layers) else None), bool(set(layers) - WINDOWED)
    above = config.get("max_window_layers")
    return window, kind in ALTERNATING or kind == "llama4_text" or (isinstance(above, int) and above > 0 and "use_sliding_window" in config)


def _state_layers(config: dict[str, Any], kind: str) -> str:
    """By what a configuration shows that it has layers without KV; empty if it does not."""
    others = sorted({str(name) for name in config.get("layer_types") or []} - WINDOWED - {"full_attention"})
    if others:
        return ", ".join(others)
    names = [kind, *(name for name, value in config.items() if value not in (None, False, 0, [], {}))]
    return next((name for name in names if kind not in PLAIN and any(part in name.lower() for part in STATE)), "")


def _refused(model: str, reason: str) -> UsageError:
    return UsageError(f"--model {model}: {reason}; {WAY_OUT}")
