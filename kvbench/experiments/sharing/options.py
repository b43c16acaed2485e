"""The options of ``sharing``: the prompts, and how many answers each gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from kvbench.experiments.at_once.options import REQUESTS, SampledOptions


class SharingOptions(SampledOptions):
    """A run of ``sharing``."""

    autos: ClassVar[Mapping[str, int | str]] = {"requests": 4, "prompt_tokens": 250, "output_tokens": 64, "temperature": 1}
    arms: ClassVar[tuple[str, ...]] = ("copy-on-write", "copying")

    n: Annotated[int, REQUESTS] = Field(4, ge=1, le=1024, description="Samples of each prompt.")
    beams: Annotated[int, REQUESTS] = Field(4, ge=1, le=1024, description="Beams of each prompt's search.")

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        return super().not_applicable() | dict.fromkeys(("rate", "concurrency"), "all requests are there at the start")
