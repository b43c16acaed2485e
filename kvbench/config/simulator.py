"""The options of the simulator: whose cache it simulates, and the rates that turn tokens into times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kvbench.config.run import RunConfig
from kvbench.config.settings import Setting, Settings, flag

SIMULATOR = Setting("Simulator", basic=True)
RATE, MILLISECONDS = replace(SIMULATOR, unit="tokens/s"), replace(SIMULATOR, unit="ms")
RUN_FOLDER = replace(SIMULATOR, metavar="RUN_DIR")


class RateOptions(Settings):
    """What a predicted time is made of; runs and plans have it."""

    prefill_rate: Annotated[float | None, RATE] = Field(
        None, gt=0, le=1e9, description="Prompt tokens computed a second; without rates no time is predicted."
    )
    restore_rate: Annotated[float | None, RATE] = Field(None, gt=0, le=1e12, description="Tokens loaded from the tier a second.")
    overhead_ms: Annotated[float | None, MILLISECONDS] = Field(
        None, ge=0, le=1e6, description="What a first token takes beside; with rates and without this: 0."
    )
    calibrate: Annotated[Path | None, RUN_FOLDER] = Field(
        None, description="Run folder of a measured run: rates that are not given are fitted to its requests."
    )

    @property
    def loads(self) -> bool:
        """Whether anything may be loaded from a host tier."""
        return True

    @model_validator(mode="after")
    def _rates_go_together(self) -> Self:
        """Half of the rates would time half of the requests, and the median of those would be believed."""
        needed = ["prefill_rate", "restore_rate"] if self.loads else ["prefill_rate"]
        given = [name for name in ("prefill_rate", "restore_rate", "overhead_ms") if getattr(self, name) is not None]
        missing = [name for name in needed if getattr(self, name) is None]
        if self.calibrate is None and given and missing:
            raise ValueError(f"{flag(given[0])} needs {flag(missing[0])} too, or --calibrate RUN_DIR, which tells what is not given")
        return self


class SimulatorOptions(RateOptions, RunConfig):
    """A run on the simulator."""

    profile: Annotated[Literal["engine", "vllm", "documents"], SIMULATOR] = Field(
        "engine",
        description="Whose cache is simulated: kvbench's own engine, vLLM 0.32 with LMCache 0.5, or one of whole documents.",
    )

    @property
    def loads(self) -> bool:
        """Whether any arm has a tier."""
        return self.has_tier

    @property
    def simulated(self) -> bool:
        """Nothing is measured."""
        return True

    @property
    def pool_is_known(self) -> bool:
        """Where whole documents are kept there are no blocks."""
        return self.profile != "documents"

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        if not self.has_tier:
            reasons.setdefault("restore_rate", "no arm has a cpu tier (--tier cpu)")
        reasons["repeats"] = "a prediction is the same every time"
        if self.profile == "documents":
            reasons |= dict.fromkeys(("block_size", "chunk_tokens"), "the profile documents keeps whole documents")
        return reasons
