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

from collections.abc import Iterator
from dataclasses import replace

from kvbench.config.common import DEFAULT_BLOCK_SIZE
from kvbench.experiments.at_once.workload import AtOnce, Length, distinct_prompts, drawn_lengths
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.fragmentation.options import FragmentationOptions
from kvbench.experiments.workload import Size
from kvbench.runners.base import ArmSetup
from kvbench.workloads.lengths_file import read_lengths_file


def make_workload(config: FragmentationOptions, facts: RunnerFacts) -> AtOnce:
    """The requests, greedy; those that ``max_length`` shortened are counted.

    Raises:
        UsageError: the file of ``--lengths`` cannot be used.
    """
    if config.lengths is None:
        drawn = drawn_lengths(config, "fragmentation/prompt tokens", "fragmentation/output tokens")
        lengths = [_cut(prompt, output, config.max_length) for prompt, output in drawn]
    else:
        drawn = lengths = list(read_lengths_file(config.lengths, config.max_length))
    return AtOnce(
        name="fragmentation",
        seed=config.seed,
        lengths=lengths,
        prompts=distinct_prompts(config.seed, "fragmentation/", lengths, facts.vocab),
        arms=list(_arms(config)),
        provided=[Size(f"--max-length {config.max_length}", 1, config.max_length - 1)],
        said={"cut_requests": sum(before != after for before, after in zip(drawn, lengths, strict=True))},
    )


def _arms(config: FragmentationOptions) -> Iterator[ArmSetup]:
    """The arms, the reservation to the maximum first."""
    plain = ArmSetup("", prefix_cache=False, sample_usage=True)
    own = replace(plain, name="reserve-own", block_size=DEFAULT_BLOCK_SIZE, allocation="reserve", contiguous=True)
    yield replace(own, name="reserve-max", reserve_tokens=config.max_length)
    yield own
    yield from (replace(plain, name=f"paged-{size}", block_size=size) for size in config.block_sizes)


def _cut(prompt: int, output: int, longest: int) -> Length:
    """As a server does: a prompt leaves room for a token at least, and an answer ends where that room does."""
    prompt = min(prompt, longest - 1)
    return prompt, min(output, longest - prompt)
