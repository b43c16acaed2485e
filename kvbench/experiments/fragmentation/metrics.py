"""Experiment ``fragmentation``: how much of the memory held tokens, what the rest was, and how many requests ran at once in it.

The runner tells the pool's use once a step. A step is *short* when the next request in the queue found no room: only then is memory what
limits, and shares and requests at once are of these steps. Each step weighs the same: they are equal on every machine, their times not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from kvbench.analysis.run_view import Line, RunView
from kvbench.analysis.statistics import Interval, Statistics
from kvbench.experiments.at_once.metrics import measured


@dataclass(frozen=True, slots=True)
class Shares:
    """What the pool's slots were, over some steps; shares that sum to 1.

    ``used`` hold a token's KV. Reserved and without one: ``for_later``, which a token will fill, and ``never_used``. Free: ``scattered``,
    which would be enough for the next request but are in no piece that it could be given, and ``free``.
    """

    used: float
    for_later: float
    never_used: float
    scattered: float
    free: float

    @property
    def waste(self) -> float:
        """Internal waste: reserved slots that hold no token ÷ reserved slots."""
        return (self.for_later + self.never_used) / (self.used + self.for_later + self.never_used)


@dataclass(frozen=True, slots=True)
class FragmentationRow:
    """One arm; steps and requests of all repeats, sizes in slots (a slot holds a token's KV).

    ``shares`` and ``at_once``, the mean of the requests that ran, are of the ``short_steps`` of ``steps``; ``None`` where no request ever
    waited for room. ``times``: ``at_once`` ÷ the baseline's. ``waste`` of the short steps, ``waste_all`` of all; ``waste_end``: of each
    request's slots at its end, in sum, and ``end_reserved``, ``end_wasted``: the median request's. ``tokens_per_s``: output tokens ÷ pass
    time, the repeats' median; ``speed``: ÷ the baseline's, the geometric mean over repeats, with a 95 % interval from two on.
    ``preemptions``: the mean of a repeat. ``None`` is unknown.
    """

    arm: str
    block_size: int | None
    pool_slots: int | None
    requests: int
    finished: int
    steps: int
    short_steps: int
    shares: Shares | None
    at_once: float | None
    times: float | None
    peak_running: int | None
    waste: float | None
    waste_all: float | None
    waste_end: float | None
    end_reserved: float | None
    end_wasted: float | None
    preemptions: int | None
    ttft_ms: Statistics
    tokens_per_s: float | None
    speed: float | None
    speed_interval: Interval | None
    pass_s: float | None


def rows(view: RunView) -> Iterator[FragmentationRow]:
    """A row for each arm that has a request."""
    usage: dict[str, list[Line]] = {}
    for (arm, _, _), of_pass in view.usage.items():
        usage.setdefault(arm, []).extend(of_pass)
    base = _at_once(usage.get(view.info.baseline or "", ()))
    for arm, own in measured(view, view.info.baseline).items():
        steps = usage.get(arm, [])
        short = [step for step in steps if is_short(step)]
        shares, overall, at_once = shares_of(short), shares_of(steps), _at_once(steps)
        events = view.events({line["request_id"] for line in own.lines}).values()
        ends = [event for found in events for event in found if event["event"] == "finish"]
        reserved, wasted = [event["slots"] for event in ends], [event["slots"] - event["used"] for event in ends]
        preemptions = [line["preemptions"] for line in own.answered]
        yield FragmentationRow(
            arm=arm,
            block_size=view.info.arm_details[arm].get("block_size", view.info.block_size),
            pool_slots=steps[0]["reserved"] + steps[0]["free"] if steps else None,
            requests=len(own.lines),
            finished=len(own.answered),
            steps=len(steps),
            short_steps=len(short),
            shares=shares,
            at_once=at_once,
            times=None if at_once is None or base is None else at_once / base,
            peak_running=max((step["running"] for step in steps), default=None),
            waste=None if shares is None else shares.waste,
            waste_all=None if overall is None else overall.waste,
            waste_end=sum(wasted) / sum(reserved) if ends else None,
            end_reserved=median(reserved) if ends else None,
            end_wasted=median(wasted) if ends else None,
            preemptions=None if not own.passes or None in preemptions else round(sum(preemptions) / len(own.passes)),
            ttft_ms=own.ttft_ms,
            tokens_per_s=own.tokens_per_s,
            speed=own.speed,
            speed_interval=own.speed_interval,
            pass_s=own.pass_s,
        )


def is_short(step: Line) -> bool:
    """Whether the next request found no room."""
    return step["needed"] is not None and step["needed"] > step["room"]


def shares_of(steps: Sequence[Line]) -> Shares | None:
    """What the slots were over these steps; ``None`` without a step."""
    slots = sum(step["reserved"] + step["free"] for step in steps)
    if not slots:
        return None
    used, never = (sum(step[name] for step in steps) for name in ("used", "unneeded"))
    later = sum(step["reserved"] for step in steps) - used - never
    scattered = sum(step["free"] for step in steps if is_short(step) and step["needed"] <= step["free"])
    return Shares(*(count / slots for count in (used, later, never, scattered, sum(step["free"] for step in steps) - scattered)))


def _at_once(steps: Sequence[Line]) -> float | None:
    """Requests that ran, in the mean of the short steps."""
    running = [step["running"] for step in steps if is_short(step)]
    return fmean(running) if running else None
