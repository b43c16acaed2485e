"""The options that runs, plans and servers have in common: a model, a device pool; and a seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from kvbench.config.settings import Auto, BlockTokens, PoolTokens, Setting, Settings

DEFAULT_KV_TOKENS = 21520
DEFAULT_BLOCK_SIZE = 16

RUN = Setting("Run")
MODEL = Setting("Model and pool", basic=True)
POOL_TOKENS = Setting("Model and pool", unit="tokens", basic=True)
BLOCK_TOKENS = replace(POOL_TOKENS, basic=False)


class ModelOptions(Settings):
    """A model and its device pool."""

    model: Annotated[str, MODEL] = Field(
        "tiny",
        min_length=1,
        description="A Hugging Face folder, or a shape with seeded random weights: tiny, qwen2.5-0.5b, qwen2.5-1.5b, llama-3.1-8b; "
        "on vllm also a name that the server knows.",
    )
    kv_tokens: Annotated[PoolTokens | Auto, POOL_TOKENS] = Field(
        "auto", description=f"Device pool, rounded down to whole blocks; auto: {DEFAULT_KV_TOKENS:,}, on vllm what the server finds."
    )
    block_size: Annotated[BlockTokens | Auto, BLOCK_TOKENS] = Field(
        "auto", description=f"What a KV block holds; auto: {DEFAULT_BLOCK_SIZE}, on vllm the server's own."
    )


class CommonOptions(ModelOptions):
    """What runs and plans have in common."""

    seed: Annotated[int, RUN] = Field(0, ge=0, le=2**63 - 1, description="Same seed, same token ids, on every machine.")
