"""Experiment ``fragmentation`` (after the article on paging): the same requests in the same memory, reserved in one piece or paged.

``reserve-max`` keeps a run of ``--max-length`` slots for each request, as a server must whose attention wants KV in one piece and who does
not know how long an answer will be. ``reserve-own`` keeps a run of exactly what each request will use: no server knows that, so it is the
kindest reservation there is (the Orca "Oracle" of the PagedAttention paper, arXiv 2309.06180, §6.1). ``paged-B`` takes a block of B when
the last one is full.

All arms run on the one engine, prefix cache off, and attend in the same way; a reservation is a run of blocks of 16, so that its attention
costs what that of ``paged-16`` does, and is rounded up to whole blocks. Blocks of 1 would round nothing, and make attention read sixteen
times the table entries, which a reservation does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvbench.config.common import DEFAULT_BLOCK_SIZE
from kvbench.experiments.at_once.prompts import distinct_prompt
from kvbench.experiments.fragmentation.options import FragmentationOptions
from kvbench.experiments.workload import Size, request_key
from kvbench.models.units import ceil_div
from kvbench.runners.base import ArmSetup, ClosedLoop, Pace, Request
from kvbench.workloads.draws import Draws
from kvbench.workloads.lengths_file import read_lengths_file
from kvbench.workloads.passes import Pass

NAME = "fragmentation"


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The workload of one run: one pass, all its requests there at the start. ``cut``: requests that ``max_length`` shortened."""

    prompts: tuple[tuple[int, ...], ...]
    outputs: tuple[int, ...]
    arms: tuple[ArmSetup, ...]
    max_length: int
    cut: int

    @property
    def passes(self) -> list[Pass]:
        """One."""
        return [Pass(NAME, 0, list(range(len(self.prompts))))]

    def requests(self, arm: str, repeat: int, pass_: Pass) -> list[Request]:
        """The requests, in order of arrival; greedy."""
        return [
            Request(request_key(pass_, arm, repeat, position), self.prompts[position], self.outputs[position]) for position in pass_.doc_ids
        ]

    def pace(self, pass_: Pass) -> Pace | None:
        """All at once."""
        return ClosedLoop(len(self.prompts))

    def sizes(self) -> list[Size]:
        """Of every request, and of the longest one that is provided for."""
        lengths = zip(self.prompts, self.outputs, strict=True)
        requests = [Size(f"request {position}", len(prompt), output) for position, (prompt, output) in enumerate(lengths)]
        return [Size(f"--max-length {self.max_length}", 1, self.max_length - 1), *requests]

    def working_set_tokens(self) -> int:
        """What all requests hold at their end; the last output token has no KV."""
        return sum(len(prompt) for prompt in self.prompts) + sum(self.outputs) - len(self.prompts)

    def working_set_chunks(self, chunk: int) -> int:
        """The same in chunks of each request's own."""
        return sum(ceil_div(len(prompt) + output - 1, chunk) for prompt, output in zip(self.prompts, self.outputs, strict=True))

    def describe(self) -> dict[str, Any]:
        """Each request's prompt and output, how many were cut, and requests a pass."""
        return {
            "requests_per_pass": len(self.prompts),
            "passes": [NAME],
            "prompt_tokens": [len(prompt) for prompt in self.prompts],
            "output_tokens": list(self.outputs),
            "cut_requests": self.cut,
        }


def make_fragmentation(config: FragmentationOptions, vocab: int) -> Fragmentation:
    """The workload a configuration describes.

    Args:
        vocab: token ids are below this.

    Raises:
        UsageError: the file of ``--lengths`` cannot be used.
    """
    if config.lengths is None:
        drawn = _draw(config)
        lengths = [_cut(prompt, output, config.max_length) for prompt, output in drawn]
    else:
        drawn = lengths = read_lengths_file(config.lengths, config.max_length)
    first = Draws(config.seed, NAME, "first").integers(1, 0, vocab)[0]
    prompts = tuple(
        distinct_prompt(first, position, prompt, vocab, Draws(config.seed, NAME, "prompt", position))
        for position, (prompt, _) in enumerate(lengths)
    )
    cut = sum(before != after for before, after in zip(drawn, lengths, strict=True))
    return Fragmentation(prompts, tuple(output for _, output in lengths), make_arms(config), config.max_length, cut)


def make_arms(config: FragmentationOptions) -> tuple[ArmSetup, ...]:
    """The arms, the reservation to the maximum first."""
    paged = (_paged(f"paged-{size}", size) for size in config.block_sizes)
    own = replace(_paged("reserve-own", DEFAULT_BLOCK_SIZE), allocation="reserve", contiguous=True)
    return replace(own, name="reserve-max", reserve_tokens=config.max_length), own, *paged


def _paged(name: str, block_size: int) -> ArmSetup:
    return ArmSetup(name, block_size=block_size, prefix_cache=False, sample_usage=True)


def _draw(config: FragmentationOptions) -> Sequence[tuple[int, int]]:
    prompts, outputs = (Draws(config.seed, NAME, purpose) for purpose in ("prompt tokens", "output tokens"))
    return [(config.prompt_lengths.draw(prompts), config.output_lengths.draw(outputs)) for _ in range(config.batch_requests)]


def _cut(prompt: int, output: int, longest: int) -> tuple[int, int]:
    """As a server does: a prompt leaves room for a token at least, and an answer ends where that room does."""
    prompt = min(prompt, longest - 1)
    return prompt, min(output, longest - prompt)
