"""Experiment ``pressure`` (after the article on preemption): requests that are there at once, and whose answers outgrow the device pool.

The arms differ in what happens then: ``ample`` has a pool in which nothing runs short, ``recompute`` and ``swap`` preempt, and ``reserve``
keeps room for the longest output from the start, so that fewer run at once. The prefix cache is on, as in a real server: who was preempted
finds the blocks again that nobody has reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvbench.experiments.at_once.workload import AtOnce, Length, distinct_prompts, drawn_lengths
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.pressure.history import arrange
from kvbench.experiments.pressure.options import PressureOptions
from kvbench.models.units import ceil_div
from kvbench.runners.base import ArmSetup, DeviceCapacity


def make_workload(config: PressureOptions, facts: RunnerFacts) -> AtOnce:
    """The requests; the capacity is that of the pool that runs short."""
    if config.context is not None:
        two = arrange(config.context, config.pool_block_size, config.step_tokens)
        lengths, said = list(zip(two.prompts, two.outputs, strict=True)), {}
    else:
        lengths = drawn_lengths(config, "pressure/prompt tokens", "pressure/output tokens")
        said = {"prompt_lengths": config.prompt_lengths.text, "output_lengths": config.output_lengths.text}
    return AtOnce(
        name="pressure",
        seed=config.seed,
        lengths=lengths,
        prompts=distinct_prompts(config.seed, "pressure/", lengths, facts.vocab),
        arms=_arms(config, lengths, facts.capacity),
        temperature=config.sampling_temperature,
        own_pace=bool({"concurrency", "rate"} & config.model_fields_set),
        said=said,
    )


def held_blocks(lengths: Sequence[Length], block_size: int) -> int:
    """Blocks that all requests hold at their end."""
    return sum(ceil_div(prompt + output, block_size) for prompt, output in lengths)


def _arms(config: PressureOptions, lengths: Sequence[Length], capacity: DeviceCapacity) -> list[ArmSetup]:
    """The arms that a configuration names; the swap space is enough for all requests, and a size of its own replaces that."""
    enough = held_blocks(lengths, capacity.block_size) * capacity.block_size
    idle = capacity.block_size if config.runner == "vllm" else 0  # vLLM never uses block 0
    made = {
        "ample": ArmSetup("ample", device_tokens=max(enough + idle, capacity.tokens)),
        "recompute": ArmSetup("recompute"),
        "swap": ArmSetup("swap", swap_tokens=enough),
        "reserve": ArmSetup("reserve", allocation="reserve"),
    }
    reused = config.context is None  # as in the article on preemption: no reuse, so all of a history is recomputed, or restored
    return [replace(made[name], victim=config.victim, prefix_cache=reused) for name in config.arms]
