"""Experiment ``sharing``: what the answers to one prompt held together, and what it took to keep them apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from kvbench.analysis.run_view import PassKey, RunView
from kvbench.analysis.statistics import Interval, Statistics, between_repeats, geometric_mean, statistics
from kvbench.experiments.at_once.metrics import Line, counted, digests_known, output_rates

REFERENCE = "copying"
"""The arm in which nothing is shared: what the others save is beside it."""


@dataclass(frozen=True, slots=True)
class Held:
    """The pool in one step, once its tokens are computed: physical blocks that are held, and entries of block tables that name them.

    ``time_s``: of the run.
    """

    time_s: float
    blocks: int
    entries: int


@dataclass(frozen=True, slots=True)
class HeldSteps:
    """One pass of one arm in its first repeat, step by step."""

    arm: str
    pass_name: str
    steps: tuple[Held, ...]


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


def rows(view: RunView) -> tuple[SharingRow, ...]:
    """A row for each pass and arm that has an answer, pass by pass."""
    held, found, info = held_blocks(view), [], view.info
    block_bytes = None if info.block_size is None or info.bytes_per_token is None else info.block_size * info.bytes_per_token
    for index in view.labels:
        lines = {arm: [line for line in own if line["pass_index"] == index] for arm, own in view.by_arm.items()}
        passes = {arm: {line["repeat"]: line for line in view.finished(arm, index)} for arm in lines}
        fullest = {arm: _fullest([held.get((arm, repeat, index), []) for repeat in passes[arm]]) for arm in lines}
        for arm, own in lines.items():
            if own:
                found.append(_row(arm, own, lines.get(REFERENCE, []), passes, fullest, held, block_bytes))
    return tuple(found)


def held_steps(view: RunView) -> tuple[HeldSteps, ...]:
    """What a plot shows, pass by pass."""
    held = held_blocks(view)
    keys = [(arm, index) for index in view.labels for arm in view.arms if held.get((arm, 0, index))]
    return tuple(HeldSteps(arm, view.labels[index], tuple(held[arm, 0, index])) for arm, index in keys)


def held_blocks(view: RunView) -> dict[PassKey, list[Held]]:
    """What the pool held in each step, pass by pass."""
    size, pool = view.info.block_size, view.info.device_tokens
    if not size or not pool:
        return {}
    return {
        key: [Held(step["time_s"], (pool - step["free"]) // size, step["reserved"] // size) for step in steps]
        for key, steps in view.usage.items()
    }


def child(line: Line) -> tuple[int, int, str]:
    """What an answer has in common with the same one of the other arm: repeat, pass, and its request id without the arm."""
    return line["repeat"], line["pass_index"], str(line["request_id"]).removeprefix(line["arm"])


def different_outputs(view: RunView) -> Iterator[Line]:
    """Answers whose tokens are not those of the reference arm."""
    base = {child(line): line for line in view.requests if line["arm"] == REFERENCE}
    for line in view.requests:
        other = base.get(child(line))
        if other is not None and digests_known(line, other) and line["output_digest"] != other["output_digest"]:
            yield line


def _row(
    arm: str,
    lines: Sequence[Line],
    reference: Sequence[Line],
    passes: Mapping[str, Mapping[int, Line]],
    fullest: Mapping[str, Held | None],
    held: Mapping[PassKey, Sequence[Held]],
    block_bytes: int | None,
) -> SharingRow:
    answered, own, base = [line for line in lines if line["error"] is None], fullest[arm], fullest.get(REFERENCE)
    index = lines[0]["pass_index"]
    steps = [step.blocks for repeat in passes[arm] for step in held.get((arm, repeat, index), ())]
    counts = counted(list(passes[arm].values()))
    rates, of_base = (output_rates(of, passes.get(name, {}).values()) for name, of in ((arm, lines), (REFERENCE, reference)))
    speeds = [rates[repeat] / of_base[repeat] for repeat in rates if repeat in of_base]
    others = {child(line): line for line in reference}
    pairs = [(line, other) for line in answered if (other := others.get(child(line))) is not None and digests_known(line, other)]
    compared = arm != REFERENCE
    walls = [line["wall_s"] for line in passes[arm].values() if line["wall_s"] is not None]
    return SharingRow(
        arm=arm,
        pass_name=lines[0]["pass"],
        requests=len({(line["repeat"], line["position"]) for line in lines}),
        answers=len(lines),
        finished=len(answered),
        blocks=None if own is None else own.blocks,
        mean_blocks=fmean(steps) if steps else None,
        entries=None if own is None else own.entries,
        shared=None if own is None else own.entries / own.blocks,
        block_bytes=block_bytes,
        saved=1 - own.blocks / base.blocks if compared and own is not None and base is not None else None,
        copied_blocks=counts.get("copied_blocks"),
        waited_forks=counts.get("waited_forks"),
        preemptions=counts.get("preemptions"),
        computed_tokens=counts.get("computed_tokens"),
        ttft_ms=statistics([line["ttft_ms"] for line in answered if line["ttft_ms"] is not None]),
        tokens_per_s=median(rates.values()) if rates else None,
        speed=geometric_mean(speeds) if compared and speeds else None,
        speed_interval=between_repeats(speeds) if compared and len(speeds) > 1 else None,
        pass_s=median(walls) if walls else None,
        same_outputs=sum(line["output_digest"] == other["output_digest"] for line, other in pairs) if compared and pairs else None,
        compared_outputs=len(pairs) if compared else 0,
    )


def _fullest(repeats: Sequence[Sequence[Held]]) -> Held | None:
    """The step in which most blocks were held; of several, the one in which they were named most often."""
    return max((step for steps in repeats for step in steps), key=lambda step: (step.blocks, step.entries), default=None)
