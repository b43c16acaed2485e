"""The options of experiments in which a number of requests is there at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from kvbench.config.run import RunConfig
from kvbench.config.settings import Auto, LengthSpec, Setting
from kvbench.workloads.lengths import Lengths, parse_lengths

REQUESTS = Setting("Requests at once", basic=True)
LENGTHS = replace(REQUESTS, unit="tokens", metavar="N|SPEC")

OWN_LENGTHS = "uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA"


class AtOnceOptions(RunConfig):
    """A run of such an experiment. ``autos``: what ``auto`` stands for in each of its options, by field name; help says it too."""

    autos: ClassVar[Mapping[str, int | str]] = {}
    smaller: ClassVar[str] = "--kv-tokens, --swap-gib or --requests"
    auto_repeats: ClassVar[int] = 3

    requests: Annotated[Annotated[int, Field(ge=1, le=100_000)] | Auto, REQUESTS] = Field(
        "auto", description="Requests, all sent at the start."
    )
    prompt_tokens: Annotated[LengthSpec, LENGTHS] = Field("auto", description=f"Prompt of each request: a length, {OWN_LENGTHS}.")
    output_tokens: Annotated[LengthSpec, LENGTHS] = Field("auto", description=f"Output of each request, exactly: a length, {OWN_LENGTHS}.")

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for name, auto in cls.autos.items():
            field = cls.model_fields[name]
            what = str(field.description).rstrip(".").partition("; auto")[0]
            field.description = f"{what}; auto: {f'{auto:,}' if isinstance(auto, int) else auto}."

    def said(self, name: str) -> int | float | str:
        """The value of an option, as it was given or as ``auto`` says."""
        value: int | float | str = getattr(self, name)
        return self.autos[name] if value == "auto" else value

    @property
    def default_pool(self) -> int:
        """Where ``auto`` says one, so small that KV runs out."""
        return int(self.autos.get("kv_tokens", super().default_pool))

    @property
    def batch_requests(self) -> int:
        """How many requests there are."""
        return int(self.said("requests"))

    @property
    def prompt_lengths(self) -> Lengths:
        """Of those requests."""
        return parse_lengths(str(self.said("prompt_tokens")))

    @property
    def output_lengths(self) -> Lengths:
        """Of those requests."""
        return parse_lengths(str(self.said("output_tokens")))

    @property
    def in_flight(self) -> int:
        """Requests that are in flight at once in a closed loop: all of them, unless a concurrency was asked for."""
        return self.concurrency if "concurrency" in self.model_fields_set else self.batch_requests

    @property
    def shorter(self) -> str:
        """What to do about a request that is too long, for messages."""
        return "lower --prompt-tokens or --output-tokens"

    def resolved(self) -> dict[str, Any]:
        """What the manifest keeps; what ``auto`` stood for is said."""
        values = super().resolved()
        values |= {name: self.said(name) for name in ("requests", "prompt_tokens", "output_tokens") if name in values}
        if "arm" in values:
            values["arm"] = list(self.arms)
        if "concurrency" not in self.model_fields_set:
            values.pop("concurrency", None)
        return values


class SampledOptions(AtOnceOptions):
    """A run of such an experiment whose answers may be sampled."""

    temperature: Annotated[Annotated[float, Field(ge=0, le=100)] | Auto, replace(REQUESTS, basic=False)] = Field(
        "auto", description="Of sampling, a seed for each answer; 0 takes the most likely token."
    )

    @property
    def sampling_temperature(self) -> float:
        """Of those requests; 0: greedy."""
        return float(self.said("temperature"))

    def resolved(self) -> dict[str, Any]:
        """What the manifest keeps; what ``auto`` stood for is said."""
        return super().resolved() | {"temperature": self.sampling_temperature}
