"""The options of experiments whose arms are tiers: which ones, and how long every answer is."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from kvbench.config.common import Tier, TierSizes
from kvbench.config.run import RunConfig
from kvbench.config.settings import LengthSpec, Setting, Settings, each_once, given_or, split_names

ARMS = Setting("Run", basic=True)
ANSWER_TOKENS = Setting("Workload", unit="tokens", metavar="N", basic=True)

DEFAULT_OUTPUT_TOKENS = 8
NO_TIER = "no arm has a cpu tier (--tier cpu)"


class AnswerOptions(Settings):
    """How long every answer is; runs and plans have it."""

    output_tokens: Annotated[LengthSpec, ANSWER_TOKENS] = Field(
        "auto", description=f"Output of each request, exactly; auto: {DEFAULT_OUTPUT_TOKENS}."
    )

    @property
    def answer_tokens(self) -> int:
        """Output of every request."""
        return given_or(self.output_tokens, DEFAULT_OUTPUT_TOKENS)  # type: ignore[arg-type]  # validated to be one length

    @property
    def overrides_output(self) -> bool:
        """Whether ``output_tokens`` goes over what a trace says of its answers."""
        return "output_tokens" in self.model_fields_set

    @property
    def studied(self) -> str:
        """The experiment whose workload this is."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _answers_are_alike(self) -> Self:
        if self.output_tokens != "auto" and not isinstance(self.output_tokens, int):
            raise ValueError(f"--output-tokens {self.output_tokens}: in {self.studied} every answer has the same length; give a number")
        return self


class TierOptions(AnswerOptions, TierSizes, RunConfig):
    """A run whose arms are tiers."""

    arm_option: ClassVar[str] = "--tier"
    smaller: ClassVar[str] = "--kv-tokens, --host-gib or --docs"

    tier: Annotated[tuple[Tier, ...], BeforeValidator(split_names), each_once("tier"), ARMS] = Field(
        ("none", "cpu"),
        min_length=1,
        description="Arms to compare, each from a cold engine; the first is the baseline. Those beside none and cpu need --runner vllm. "
        "Repeatable.",
    )

    @property
    def studied(self) -> str:
        """The experiment."""
        return self.experiment

    @property
    def arms(self) -> tuple[str, ...]:
        """The tiers."""
        return self.tier

    @property
    def tiers(self) -> tuple[str, ...]:
        """Names of the tiers, ``none`` among them."""
        return self.tier

    @property
    def tier_chunk_tokens(self) -> int:
        """As it was given."""
        return self.chunk_tokens

    @model_validator(mode="after")
    def _runner_has_tiers(self) -> Self:
        """Only a vLLM server has tiers beside ``none`` and ``cpu``."""
        for name in self.tier:
            if self.runner != "vllm" and name not in ("none", "cpu"):
                raise ValueError(f"--tier {name} needs --runner vllm (the runner is {self.runner})")
        return self

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        if not self.has_tier:
            reasons |= dict.fromkeys(("host_gib", "host_tokens", "chunk_tokens"), NO_TIER)
        return reasons

    def resolved(self) -> dict[str, object]:
        """What the manifest keeps; the length of an answer as a number."""
        values = super().resolved()
        return values | ({"output_tokens": self.answer_tokens} if values.get("output_tokens") == "auto" else {})
