"""Tiers by name, and how large the cpu tier is: what runs, plans and servers started by hand have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from kvbench.config.settings import Auto, Gibibytes, Setting, Settings

Tier = Literal["none", "cpu", "lmcache-inproc", "disk", "redis", "native"]

TIER = Setting("Host tier")
TIER_TOKENS, TIER_GIB = replace(TIER, unit="tokens"), replace(TIER, unit="GiB", basic=True)
DEFAULT_CHUNK_TOKENS = 256


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
