"""Experiment ``pressure`` (after the article on preemption): requests that are there at once, and whose answers outgrow the device pool.

The arms differ in what happens then: ``ample`` has a pool in which nothing runs short, ``recompute`` and ``swap`` preempt, and ``reserve``
keeps room for the longest output from the start, so that fewer run at once. The prefix cache is on, as in a real server: who was preempted
finds the blocks again that nobody has reused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvbench.experiments.at_once.prompts import distinct_prompt
from kvbench.experiments.pressure.history import arrange
from kvbench.experiments.pressure.options import PressureOptions
from kvbench.experiments.workload import Size, request_key
from kvbench.models.units import ceil_div
from kvbench.runners.base import ArmSetup, ClosedLoop, DeviceCapacity, Pace, Request
from kvbench.workloads.draws import Draws
from kvbench.workloads.lengths import Lengths
from kvbench.workloads.passes import Pass

NAME = "pressure"


@dataclass(frozen=True, slots=True)
class Load:
    """Tokens of each request's prompt and output."""

    prompts: tuple[int, ...]
    outputs: tuple[int, ...]

    def blocks(self, block_size: int) -> int:
        """Blocks that all requests hold at their end."""
        return sum(ceil_div(prompt + output, block_size) for prompt, output in zip(self.prompts, self.outputs, strict=True))


@dataclass(frozen=True, slots=True)
class Pressure:
    """The workload of one run: one pass, all its requests in flight at once unless ``pace`` says otherwise."""

    load: Load
    prompts: tuple[tuple[int, ...], ...]
    seeds: tuple[int, ...]
    temperature: float
    arms: tuple[ArmSetup, ...]
    own_pace: Pace | None
    described: dict[str, Any]

    @property
    def passes(self) -> list[Pass]:
        """One."""
        return [Pass(NAME, 0, list(range(len(self.prompts))))]

    def requests(self, arm: str, repeat: int, pass_: Pass) -> list[Request]:
        """The requests, in order of arrival."""
        return [
            Request(
                request_key(pass_, arm, repeat, position),
                self.prompts[position],
                self.load.outputs[position],
                self.temperature,
                self.seeds[position],
            )
            for position in pass_.doc_ids
        ]

    def pace(self, pass_: Pass) -> Pace | None:
        """All at once, unless the configuration gives a pace."""
        return self.own_pace

    def sizes(self) -> list[Size]:
        """Of every request."""
        lengths = zip(self.load.prompts, self.load.outputs, strict=True)
        return [Size(f"request {position}", prompt, output) for position, (prompt, output) in enumerate(lengths)]

    def working_set_tokens(self) -> int:
        """What all requests hold at their end; the last output token has no KV."""
        return sum(self.load.prompts) + sum(self.load.outputs) - len(self.prompts)

    def working_set_chunks(self, chunk: int) -> int:
        """The same in chunks of each request's own."""
        lengths = zip(self.load.prompts, self.load.outputs, strict=True)
        return sum(ceil_div(prompt + output - 1, chunk) for prompt, output in lengths)

    def describe(self) -> dict[str, Any]:
        """Each request's prompt and output, the distributions as they were said, and requests a pass."""
        return {
            "requests_per_pass": len(self.prompts),
            "passes": [NAME],
            "prompt_tokens": list(self.load.prompts),
            "output_tokens": list(self.load.outputs),
            **self.described,
        }


def make_pressure(config: PressureOptions, vocab: int, capacity: DeviceCapacity) -> Pressure:
    """The workload a configuration describes.

    Args:
        vocab: token ids are below this.
        capacity: of the pool that runs short.
    """
    load = make_load(config)
    first = Draws(config.seed, NAME, "first").integers(1, 0, vocab)[0]
    prompts = tuple(
        distinct_prompt(first, position, length, vocab, Draws(config.seed, NAME, "prompt", position))
        for position, length in enumerate(load.prompts)
    )
    seeds = tuple(Draws(config.seed, NAME, "sampling", position).integers(1, 0, 2**63)[0] for position in range(len(prompts)))
    own_pace = None if {"concurrency", "rate"} & config.model_fields_set else ClosedLoop(len(prompts))
    said = {"prompt_lengths": config.prompt_lengths.text, "output_lengths": config.output_lengths.text}
    described = {} if config.context is not None else said
    return Pressure(load, prompts, seeds, config.sampling_temperature, make_arms(config, load, capacity), own_pace, described)


def make_load(config: PressureOptions) -> Load:
    """The lengths that a configuration asks for."""
    if config.context is not None:
        two = arrange(config.context, config.pool_block_size, config.step_tokens)
        return Load(two.prompts, two.outputs)

    def drawn(lengths: Lengths, purpose: str) -> tuple[int, ...]:
        draws = Draws(config.seed, NAME, purpose)
        return tuple(lengths.draw(draws) for _ in range(config.batch_requests))

    return Load(drawn(config.prompt_lengths, "prompt tokens"), drawn(config.output_lengths, "output tokens"))


def make_arms(config: PressureOptions, load: Load, capacity: DeviceCapacity) -> tuple[ArmSetup, ...]:
    """The arms that a configuration names; the swap space is enough for all requests, and a size of its own replaces that."""
    enough = load.blocks(capacity.block_size) * capacity.block_size
    idle = capacity.block_size if config.runner == "vllm" else 0  # vLLM never uses block 0
    made = {
        "ample": ArmSetup("ample", device_tokens=max(enough + idle, capacity.tokens)),
        "recompute": ArmSetup("recompute"),
        "swap": ArmSetup("swap", swap_tokens=enough),
        "reserve": ArmSetup("reserve", allocation="reserve"),
    }
    reused = config.context is None  # as in the article on preemption: no reuse, so all of a history is rebuilt, or restored
    return tuple(replace(made[name], victim=config.victim, prefix_cache=reused) for name in config.arms)
