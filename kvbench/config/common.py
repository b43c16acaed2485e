"""The options that runs, plans and servers started by hand have in common: a model, a device pool, a cpu tier; and a seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from kvbench.config.settings import Auto, BlockTokens, Gibibytes, PoolTokens, Setting, Settings

DEFAULT_KV_TOKENS = 21520
DEFAULT_BLOCK_SIZE = 16

RUN = Setting("Run")
MODEL = Setting("Model and pool", basic=True)
POOL_TOKENS = Setting("Model and pool", unit="tokens", basic=True)
BLOCK_TOKENS = replace(POOL_TOKENS, basic=False)

Tier = Literal["none", "cpu", "lmcache-inproc", "disk", "redis", "native"]

TIER = Setting("Host tier")
TIER_TOKENS, TIER_GIB = replace(TIER, unit="tokens"), replace(TIER, unit="GiB", basic=True)
DEFAULT_CHUNK_TOKENS = 256


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


class TierSizes(Settings):
    """How large the cpu tier is."""

    host_gib: Annotated[Gibibytes | Auto, TIER_GIB] = Field("auto", description="Size of the cpu tier; auto: the working set.")
    host_tokens: Annotated[int | None, TIER_TOKENS] = Field(None, ge=0, le=10**11, description="Size of the cpu tier, in tokens instead.")
    chunk_tokens: Annotated[int, TIER_TOKENS] = Field(
        DEFAULT_CHUNK_TOKENS, ge=1, le=65536, description="What the cpu tier stores and evicts at once."
    )

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing here, with the reason."""
        reasons = super().not_applicable()
        if self.host_tokens is not None:
            reasons["host_gib"] = "--host-tokens gives the size already"
        return reasons


class CommonOptions(ModelOptions):
    """What runs and plans have in common."""

    seed: Annotated[int, RUN] = Field(0, ge=0, le=2**63 - 1, description="Same seed, same token ids, on every machine.")


def check_sizes(chunk_tokens: int | None, block_size: int, kv_tokens: int) -> None:
    """Refuse sizes that do not go together; ``chunk_tokens`` ``None``: nothing is stored in chunks.

    Raises:
        ValueError: names the options.
    """
    if chunk_tokens is not None and chunk_tokens % block_size:
        raise ValueError(f"--chunk-tokens {chunk_tokens} is not a multiple of --block-size {block_size}")
    if kv_tokens < block_size:
        raise ValueError(f"--kv-tokens {kv_tokens} holds no block of --block-size {block_size}")
