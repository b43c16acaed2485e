"""Experiment ``pressure``: what it cost an arm that KV ran out, and what its recovery did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvbench.analysis.run_view import Line, RunView
from kvbench.analysis.stalls import StallTimes, stall_times
from kvbench.analysis.statistics import Interval, Statistics, statistics
from kvbench.experiments.at_once.metrics import measured


@dataclass(frozen=True, slots=True)
class PressureRow:
    """One arm. Requests and latencies are of all repeats; ``tokens_per_s`` is the median of the repeats that ended, counts their mean.

    ``tokens_per_s``: output tokens ÷ pass time. ``share``: that of this arm ÷ the baseline's, the repeats' geometric mean, with a 95 %
    interval from two repeats on. ``itl_ms``: gaps between tokens; of tokens that came together, all but one are 0. ``peak_running``: the
    most requests that ran in one step. ``rebuilt_tokens``: computed again after a preemption; ``wasted``: those ÷ all computed.
    ``swap_full``: preemptions that found no room to swap to. ``same_outputs`` of ``compared_outputs`` requests gave the baseline's tokens.
    ``None`` is unknown.
    """

    arm: str
    pool_tokens: int | None
    requests: int
    finished: int
    tokens_per_s: float | None
    share: float | None
    share_interval: Interval | None
    ttft_ms: Statistics
    tpot_ms: Statistics
    itl_ms: Statistics
    same_outputs: int | None
    compared_outputs: int
    peak_running: int | None
    preemptions: int | None
    rebuilt_tokens: int | None
    computed_tokens: int | None
    wasted: float | None
    swapped_out_bytes: int | None
    swapped_in_bytes: int | None
    swap_full: int | None
    stalls: StallTimes

    @property
    def speed(self) -> float | None:
        """``share``, as other experiments call it."""
        return self.share

    @property
    def speed_interval(self) -> Interval | None:
        """Its interval."""
        return self.share_interval


def rows(view: RunView) -> Iterator[PressureRow]:
    """A row for each arm that has a request."""
    for arm, own in measured(view, view.info.baseline).items():
        rebuilt, computed = own.counts.get("recomputed_tokens"), own.counts.get("computed_tokens")
        yield PressureRow(
            arm=arm,
            pool_tokens=view.info.arm_details[arm].get("device_tokens", view.info.device_tokens),
            requests=len(own.lines),
            finished=len(own.answered),
            tokens_per_s=own.tokens_per_s,
            share=own.speed,
            share_interval=own.speed_interval,
            ttft_ms=own.ttft_ms,
            tpot_ms=statistics([value for line in own.answered if (value := _tpot_ms(line)) is not None]),
            itl_ms=statistics([gap for line in own.answered for gap in _itl_ms(line)]),
            same_outputs=sum(own.same_outputs) if own.same_outputs else None,
            compared_outputs=len(own.same_outputs),
            peak_running=max((peak for line in own.passes if (peak := line.get("peak_running")) is not None), default=None),
            preemptions=own.counts.get("preemptions"),
            rebuilt_tokens=rebuilt,
            computed_tokens=computed,
            wasted=rebuilt / computed if rebuilt is not None and computed else None,
            swapped_out_bytes=own.counts.get("swapped_out_bytes"),
            swapped_in_bytes=own.counts.get("swapped_in_bytes"),
            swap_full=own.counts.get("swap_full"),
            stalls=stall_times(view.run, arm),
        )


def _tpot_ms(line: Line) -> float | None:
    """Time per output token after the first."""
    tokens, first, last = line["output_tokens"], line["first_token_s"], line["last_token_s"]
    return (last - first) * 1e3 / (tokens - 1) if tokens is not None and tokens > 1 and None not in (first, last) else None


def _itl_ms(line: Line) -> Iterator[float]:
    """The gap before each token but the first; none where nobody said how many tokens came together."""
    times, counts = line["token_times_s"], line["chunk_tokens"]
    if counts is None:
        return
    for number, count in enumerate(counts):
        if number:
            yield (times[number] - times[number - 1]) * 1e3
        yield from [0.0] * (count - 1)
