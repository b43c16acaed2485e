"""The options of ``kvbench serve``: those of a run's servers, and where they listen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from kvbench.config.common import BLOCK_TOKENS, MODEL, POOL_TOKENS, TIER_GIB, ModelOptions, Tier, TierSizes
from kvbench.config.settings import Auto, BlockTokens, Gibibytes, PoolTokens, Setting
from kvbench.config.vllm import StartOptions

SERVER = Setting("Server")
DEFAULT_GIB = 4.0


class ServeConfig(StartOptions, TierSizes, ModelOptions):
    """One server, and its LMCache server if it has one."""

    model: Annotated[str, MODEL] = Field(
        "tiny",
        min_length=1,
        description="A Hugging Face folder, a hub's model that the cache holds, or a shape with random weights such as tiny.",
    )
    kv_tokens: Annotated[PoolTokens | Auto, POOL_TOKENS] = Field(
        "auto", description="Device pool; auto: as the server decides, 1 GiB on the CPU."
    )
    block_size: Annotated[BlockTokens | Auto, BLOCK_TOKENS] = Field(
        "auto", description="What a KV block holds, a multiple of 32 on the CPU; auto: as the server decides."
    )
    dtype: Annotated[str, MODEL] = Field("auto", min_length=1, description="Weights and KV, as vLLM takes it.")
    tier: Annotated[Tier, SERVER] = Field("none", description="The tier beside the device pool.")
    port: Annotated[int, SERVER] = Field(8000, ge=1, le=65535, description="Where vLLM listens, on loopback.")
    max_model_len: Annotated[int | None, replace(SERVER, unit="tokens")] = Field(
        None, ge=1, le=10**9, description="Longest prompt and output together; none: what the pool holds."
    )
    host_gib: Annotated[Gibibytes, TIER_GIB] = Field(
        DEFAULT_GIB, ge=0.0625, description="Host memory of the tier; LMCache evicts from 0.8 of it on."
    )
    logs: Annotated[Path | None, SERVER] = Field(None, description="Where the servers' logs go; none: a new temporary folder.")

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing here, with the reason."""
        reasons = super().not_applicable()
        for name in ("disk", "redis"):
            if name != self.tier:
                reasons.setdefault(name, f"the tier is {self.tier} (--tier {name})")
        if self.tier == "none":
            reasons |= dict.fromkeys(("host_gib", "host_tokens", "chunk_tokens"), "the tier is none (--tier cpu)")
        return reasons
