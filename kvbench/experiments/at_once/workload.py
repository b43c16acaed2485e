"""Workloads of requests that are all there at the start, whose made prompts begin each in another way, so that they share no KV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kvbench.experiments.at_once.options import AtOnceOptions
from kvbench.experiments.workload import Size, request_key
from kvbench.models.units import ceil_div
from kvbench.runners.base import ArmSetup, ClosedLoop, Pace, Request
from kvbench.workloads.draws import Draws
from kvbench.workloads.passes import Pass

Length = tuple[int, int]
"""Tokens of a request's prompt and of its output."""


@dataclass(frozen=True, kw_only=True)
class AtOnce:
    """The workload of one run: one pass, named as the experiment.

    ``own_pace``: whether the configuration says when requests are sent, and they are not all in flight at once. ``provided``: sizes beside
    the requests' own that arms provide for. ``said``: what else the manifest says of the workload.
    """

    each: ClassVar[str] = "request"
    """What messages call one of them."""

    name: str
    seed: int
    lengths: Sequence[Length]
    prompts: Sequence[tuple[int, ...]]
    arms: Sequence[ArmSetup]
    temperature: float = 0.0
    own_pace: bool = False
    provided: Sequence[Size] = ()
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passes(self) -> list[Pass]:
        """One."""
        return [Pass(self.name, 0, list(range(len(self.prompts))))]

    def requests(self, arm: str, repeat: int, pass_: Pass) -> list[Request]:
        """The requests, in order of arrival."""
        return [
            Request(
                request_key(pass_, arm, repeat, position),
                self.prompts[position],
                self.lengths[position][1],
                self.temperature,
                Draws(self.seed, self.name, "sampling", position).integers(1, 0, 2**63)[0],
            )
            for position in pass_.doc_ids
        ]

    def pace(self, pass_: Pass) -> Pace | None:
        """All at once, unless the configuration gives a pace."""
        return None if self.own_pace else ClosedLoop(len(pass_.doc_ids))

    def sizes(self) -> list[Size]:
        """Of every request, and what else arms provide for."""
        return [*self.provided, *(Size(f"{self.each} {position}", *lengths) for position, lengths in enumerate(self.lengths))]

    def working_set_tokens(self) -> int:
        """What all requests hold at their end; the last output token has no KV."""
        return self.working_set_chunks(1)

    def working_set_chunks(self, chunk: int) -> int:
        """The same in chunks of each request's own."""
        return sum(ceil_div(prompt + output - 1, chunk) for prompt, output in self.lengths)

    def describe(self) -> dict[str, Any]:
        """Each request's prompt and output, requests a pass, and what else there is to say."""
        prompts, outputs = (list(tokens) for tokens in zip(*self.lengths, strict=True))
        return {
            "requests_per_pass": len(self.prompts),
            "passes": [self.name],
            "prompt_tokens": prompts,
            "output_tokens": outputs,
            **self.said,
        }


def drawn_lengths(config: AtOnceOptions, prompts: str, outputs: str, passes: int = 1) -> list[Length]:
    """The lengths that a configuration asks for, for the requests of so many passes.

    Args:
        prompts, outputs: what they are drawn for, see :class:`kvbench.workloads.draws.Draws`.
    """
    of_prompts, of_outputs = Draws(config.seed, prompts), Draws(config.seed, outputs)
    count = passes * config.batch_requests
    return [(config.prompt_lengths.draw(of_prompts), config.output_lengths.draw(of_outputs)) for _ in range(count)]


def distinct_prompts(seed: int, purpose: str, lengths: Sequence[Length], vocab: int) -> list[tuple[int, ...]]:
    """Prompts of which no two begin alike, up to as many as there are token ids: each begins one further on than the one before it.

    Args:
        purpose: what the draws are for, up to the words "first" and "prompt".
        vocab: token ids are below this.
    """
    first = Draws(seed, f"{purpose}first").integers(1, 0, vocab)[0]
    return [
        ((first + position) % vocab, *Draws(seed, f"{purpose}prompt", position).integers(length - 1, 0, vocab))
        for position, (length, _) in enumerate(lengths)
    ]
