"""The options of experiments in which a number of requests is there at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from kvbench.config.run import RunConfig
from kvbench.config.settings import Auto, LengthSpec, Setting, given_or
from kvbench.workloads.lengths import Lengths, parse_lengths

REQUESTS = Setting("Requests at once", basic=True)
LENGTHS = replace(REQUESTS, unit="tokens", metavar="N|SPEC")
Temperature = Annotated[float, Field(ge=0, le=100)]

OWN_LENGTHS = "uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA"


class AtOnceOptions(RunConfig):
    """A run of such an experiment. What ``auto`` stands for is said by each of them."""

    auto_requests: ClassVar[int]
    auto_prompt: ClassVar[int | str]
    auto_output: ClassVar[int | str]
    auto_temperature: ClassVar[float] = 0.0

    requests: Annotated[Annotated[int, Field(ge=1, le=100_000)] | Auto, REQUESTS] = Field(
        "auto", description="Requests, all sent at the start; auto: as the experiment says."
    )
    prompt_tokens: Annotated[LengthSpec, LENGTHS] = Field("auto", description=f"Prompt of each request: a length, {OWN_LENGTHS}.")
    output_tokens: Annotated[LengthSpec, LENGTHS] = Field("auto", description=f"Output of each request, exactly: a length, {OWN_LENGTHS}.")

    @property
    def batch_requests(self) -> int:
        """How many requests there are."""
        return given_or(self.requests, self.auto_requests)

    @property
    def prompt_lengths(self) -> Lengths:
        """Of those requests."""
        return parse_lengths(str(self.said_prompt))

    @property
    def output_lengths(self) -> Lengths:
        """Of those requests."""
        return parse_lengths(str(self.said_output))

    @property
    def said_prompt(self) -> int | str:
        """A prompt's length, or the distribution of it, as it was said."""
        return self.auto_prompt if self.prompt_tokens == "auto" else self.prompt_tokens

    @property
    def said_output(self) -> int | str:
        """The same of an answer."""
        return self.auto_output if self.output_tokens == "auto" else self.output_tokens

    @property
    def sampling_temperature(self) -> float:
        """Of those requests; 0: greedy."""
        given = getattr(self, "temperature", "auto")
        return self.auto_temperature if given == "auto" else float(given)

    @property
    def all_at_once(self) -> bool:
        """Whether all requests are in flight at once: no concurrency was asked for."""
        return "concurrency" not in self.model_fields_set

    @property
    def in_flight(self) -> int:
        """Requests that are in flight at once in a closed loop."""
        return self.batch_requests if self.all_at_once else self.concurrency

    @property
    def shorter(self) -> str:
        """What to do about a request that is too long, for messages."""
        return "lower --prompt-tokens or --output-tokens"

    @property
    def smaller(self) -> str:
        """Options that make a run take less memory, for messages."""
        return "--kv-tokens, --swap-gib or --requests"

    def resolved(self) -> dict[str, Any]:
        """What the manifest keeps; what ``auto`` stood for is said."""
        values = super().resolved()
        said = {
            "arm": list(self.arms),
            "requests": self.batch_requests,
            "prompt_tokens": self.said_prompt,
            "output_tokens": self.said_output,
            "temperature": self.sampling_temperature,
        }
        values |= {name: value for name, value in said.items() if name in values}
        if self.all_at_once:
            values.pop("concurrency", None)
        return values


def described(option: str, auto: int | str) -> str:
    """The description of one of these options in an experiment.

    Args:
        option: ``requests``, ``prompt_tokens`` or ``output_tokens``.
        auto: what ``auto`` stands for there.
    """
    what = str(AtOnceOptions.model_fields[option].description).rstrip(".").partition("; auto")[0]
    return f"{what}; auto: {auto}."
