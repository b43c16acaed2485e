"""Experiment ``sharing``: what the answers to one prompt held together, and what it took to keep them apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from kvbench.analysis.run_view import PassKey, RunView
from kvbench.analysis.statistics import Interval, Statistics
from kvbench.experiments.at_once.metrics import measured

REFERENCE = "copying"
"""The arm in which nothing is shared: what the others save is beside it."""


class Held(NamedTuple):
    """The pool in one step, once its tokens are computed: physical blocks that are held, and entries of block tables that name them."""

    blocks: int
    entries: int


@dataclass(frozen=True, slots=True)
class SharingRow:
    """One pass of one arm. Answers are of all repeats; counts are the mean of a repeat's, times and rates the repeats' median.

    ``blocks``: held in the fullest step, and ``entries`` of block tables then, each of which would be a block if nothing were shared;
    ``shared``: entries ÷ blocks. ``mean_blocks``: over the steps. ``saved``: the share by which ``blocks`` are fewer than those of the
    arm :data:`REFERENCE`. ``copied_blocks``: at a fork, or on a write to a shared one. ``tokens_per_s``: output tokens ÷ pass time;
    ``speed``: that ÷ the reference's, the geometric mean over repeats, with a 95 % interval from two on. ``waited_forks``: found no room
    for their copies. ``same_outputs`` of ``compared_outputs`` answers have the reference's tokens. ``None`` is unknown, or does not apply.
    """

    arm: str
    pass_name: str
    requests: int
    answers: int
    finished: int
    blocks: int | None
    mean_blocks: float | None
    entries: int | None
    shared: float | None
    block_bytes: int | None
    saved: float | None
    copied_blocks: int | None
    waited_forks: int | None
    preemptions: int | None
    computed_tokens: int | None
    ttft_ms: Statistics
    tokens_per_s: float | None
    speed: float | None
    speed_interval: Interval | None
    pass_s: float | None
    same_outputs: int | None
    compared_outputs: int


def rows(view: RunView) -> Iterator[SharingRow]:
    """A row for each pass and arm that has an answer, pass by pass."""
    held, size, token_bytes = held_blocks(view), view.info.block_size, view.info.bytes_per_token
    for index in view.labels:
        arms = measured(view, REFERENCE, index)
        steps = {arm: [step for line in own.passes for step in held.get((arm, line["repeat"], index), ())] for arm, own in arms.items()}
        fullest = {arm: max(found, default=None) for arm, found in steps.items()}  # of several, the one with most entries
        base = fullest.get(REFERENCE)
        for arm, own in arms.items():
            most, compared = fullest[arm], arm != REFERENCE
            same = own.same_outputs if compared else []
            yield SharingRow(
                arm=arm,
                pass_name=own.lines[0]["pass"],
                requests=len({(line["repeat"], line["position"]) for line in own.lines}),
                answers=len(own.lines),
                finished=len(own.answered),
                blocks=None if most is None else most.blocks,
                mean_blocks=fmean(step.blocks for step in steps[arm]) if steps[arm] else None,
                entries=None if most is None else most.entries,
                shared=None if most is None else most.entries / most.blocks,
                block_bytes=None if size is None or token_bytes is None else size * token_bytes,
                saved=1 - most.blocks / base.blocks if compared and most is not None and base is not None else None,
                copied_blocks=own.counts.get("copied_blocks"),
                waited_forks=own.counts.get("waited_forks"),
                preemptions=own.counts.get("preemptions"),
                computed_tokens=own.counts.get("computed_tokens"),
                ttft_ms=own.ttft_ms,
                tokens_per_s=own.tokens_per_s,
                speed=own.speed if compared else None,
                speed_interval=own.speed_interval,
                pass_s=own.pass_s,
                same_outputs=sum(same) if same else None,
                compared_outputs=len(same),
            )


def held_blocks(view: RunView) -> dict[PassKey, list[Held]]:
    """What the pool held in each step, pass by pass."""
    size, pool = view.info.block_size, view.info.device_tokens
    if not size or not pool:
        return {}
    return {key: [Held((pool - step["free"]) // size, step["reserved"] // size) for step in steps] for key, steps in view.usage.items()}
