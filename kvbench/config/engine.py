"""The options of the in-process engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from kvbench.config.run import RunConfig
from kvbench.config.settings import Setting

ENGINE = Setting("Engine")
ENGINE_TOKENS = Setting("Engine", unit="tokens")


class EngineOptions(RunConfig):
    """A run on the engine."""

    max_batch_tokens: Annotated[int, ENGINE_TOKENS] = Field(2048, ge=1, le=10_000_000, description="Token budget of one engine step.")
    device: Annotated[Literal["auto", "cpu", "cuda"], replace(ENGINE, basic=True)] = Field(
        "auto", description="auto: cuda where there is one."
    )
    link_gbps: Annotated[float | None, replace(ENGINE, unit="GB/s")] = Field(
        None,
        gt=0,
        le=1e4,
        description="Slow copies between device and host down to this, each way: a link is simulated, and every output says so.",
    )
    compile: Annotated[bool, ENGINE] = Field(False, description="Run the model through torch's compiler (needs a C++ compiler).")

    @property
    def step_tokens(self) -> int:
        """The most tokens that one step computes."""
        return self.max_batch_tokens

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        if not self.copies:
            reasons.setdefault("link_gbps", "no arm copies between device and host (--tier cpu, --arm swap)")
        return reasons
