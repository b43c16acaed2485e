"""The options of ``sharing``: the prompts, and how many answers each gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from kvbench.config.settings import Auto, LengthSpec
from kvbench.experiments.at_once.options import LENGTHS, REQUESTS, AtOnceOptions, Temperature, described


class SharingOptions(AtOnceOptions):
    """A run of ``sharing``."""

    auto_requests: ClassVar[int] = 4
    auto_prompt: ClassVar[int | str] = 250
    auto_output: ClassVar[int | str] = 64
    auto_temperature: ClassVar[float] = 1.0

    requests: Annotated[Annotated[int, Field(ge=1, le=100_000)] | Auto, REQUESTS] = Field(
        "auto", description=described("requests", auto_requests)
    )
    prompt_tokens: Annotated[LengthSpec, LENGTHS] = Field("auto", description=described("prompt_tokens", auto_prompt))
    output_tokens: Annotated[LengthSpec, LENGTHS] = Field("auto", description=described("output_tokens", auto_output))
    temperature: Annotated[Temperature | Auto, replace(REQUESTS, basic=False)] = Field(
        "auto", description="Of sampling, a seed for each answer; 0 takes the most likely token; auto: 1."
    )
    n: Annotated[int, REQUESTS] = Field(4, ge=1, le=1024, description="Samples of each prompt.")
    beams: Annotated[int, REQUESTS] = Field(4, ge=1, le=1024, description="Beams of each prompt's search.")

    @property
    def arms(self) -> tuple[str, ...]:
        """What the engine does with blocks that several answers hold."""
        return ("copy-on-write", "copying")

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        return super().not_applicable() | dict.fromkeys(("rate", "concurrency"), "all requests are there at the start")
