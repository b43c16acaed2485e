"""The options of ``trace``: the file, and the times at which its requests are sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kvbench.config.run import TIMES
from kvbench.config.settings import Setting, Settings, flag
from kvbench.experiments.tiers.options import TierOptions

TRACE = Setting("Workload", basic=True)
TRACE_TOKENS, TRACE_FILE = replace(TRACE, unit="tokens"), replace(TRACE, metavar="FILE")


class TraceFileOptions(Settings):
    """The file, and what of it is read; runs and plans have it."""

    trace: Annotated[Path | None, TRACE_FILE] = Field(
        None, description="Request trace: Mooncake's, Weka's, ShareGPT's, your own, ... (docs/traces.md)."
    )
    trace_block_size: Annotated[int | None, replace(TRACE_TOKENS, basic=False)] = Field(
        None, ge=1, le=65536, description="What a hash id of the trace stands for, if it is not what its form says (Mooncake's: 512)."
    )
    trace_time_unit: Annotated[Literal["s", "ms"] | None, replace(TRACE, basic=False)] = Field(
        None, description="Unit of the trace's timestamps, if it is not what its form says (Mooncake's: ms)."
    )
    limit: Annotated[int | None, TRACE] = Field(None, ge=1, le=10**9, description="Only the first requests of the trace.")
    max_prompt_tokens: Annotated[int | None, TRACE_TOKENS] = Field(
        None, ge=1, le=10**9, description="Leave out requests of the trace with longer prompts; how many is said."
    )


class TraceOptions(TraceFileOptions, TierOptions):
    """A run of ``trace``."""

    shorter: ClassVar[str] = "leave it out"

    speedup: Annotated[float, replace(TIMES, basic=True)] = Field(
        1.0, gt=0, le=1e9, description="Replay this many times as fast as recorded."
    )

    @property
    def keeps_times(self) -> bool:
        """Whether the trace's own times are the pace: nothing else was asked for."""
        return self.rate is None and "concurrency" not in self.model_fields_set

    @model_validator(mode="after")
    def _trace_named(self) -> Self:
        if self.trace is None:
            raise ValueError("the experiment trace needs --trace FILE, the requests to replay")
        return self

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        if not self.overrides_output:
            reasons["output_tokens"] = "the trace has its own"
        if self.keeps_times:
            reasons["concurrency"] = "the trace has its own times"
        else:
            reasons["speedup"] = f"{flag('concurrency' if self.rate is None else 'rate')} sends instead of the trace's own times"
        return reasons
