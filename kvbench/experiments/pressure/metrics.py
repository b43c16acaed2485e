"""Experiment ``pressure``: what it cost an arm that KV ran out, and what its recovery did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from kvbench.analysis.run_view import RunView
from kvbench.analysis.stalls import StallTimes, stall_times
from kvbench.analysis.statistics import Interval, Statistics, between_repeats, geometric_mean, statistics
from kvbench.experiments.at_once.metrics import Line, counted, digests_known, output_rates


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


def rows(view: RunView) -> tuple[PressureRow, ...]:
    """A row for each arm that has a request."""
    rates = {arm: output_rates(lines, view.finished(arm)) for arm, lines in view.by_arm.items()}
    base = {(line["repeat"], line["position"]): line for line in view.by_arm.get(view.info.baseline or "", ())}
    return tuple(_row(view, arm, base, rates) for arm, lines in view.by_arm.items() if lines)


def _row(view: RunView, arm: str, base: Mapping[tuple[int, int], Line], rates: Mapping[str, Mapping[int, float]]) -> PressureRow:
    lines, passes, baseline = view.by_arm[arm], view.finished(arm), view.info.baseline or ""
    answered = [line for line in lines if line["error"] is None]
    counts = counted(passes)
    rebuilt, computed = counts.get("recomputed_tokens"), counts.get("computed_tokens")
    ratios = [rate / rates[baseline][repeat] for repeat, rate in rates[arm].items() if repeat in rates[baseline]]
    pairs = [(line, other) for line in answered if (other := base.get((line["repeat"], line["position"]))) and digests_known(line, other)]
    peaks = [peak for line in passes if (peak := line.get("peak_running")) is not None]
    return PressureRow(
        arm=arm,
        pool_tokens=view.info.arm_details[arm].get("device_tokens", view.info.device_tokens),
        requests=len(lines),
        finished=len(answered),
        tokens_per_s=median(rates[arm].values()) if rates[arm] else None,
        share=geometric_mean(ratios) if ratios else None,
        share_interval=between_repeats(ratios) if len(ratios) > 1 and arm != baseline else None,
        ttft_ms=statistics([line["ttft_ms"] for line in answered if line["ttft_ms"] is not None]),
        tpot_ms=statistics([value for line in answered if (value := _tpot_ms(line)) is not None]),
        itl_ms=statistics([gap for line in answered for gap in _itl_ms(line)]),
        same_outputs=sum(line["output_digest"] == other["output_digest"] for line, other in pairs) if pairs else None,
        compared_outputs=len(pairs),
        peak_running=max(peaks, default=None),
        preemptions=counts.get("preemptions"),
        rebuilt_tokens=rebuilt,
        computed_tokens=computed,
        wasted=rebuilt / computed if rebuilt is not None and computed else None,
        swapped_out_bytes=counts.get("swapped_out_bytes"),
        swapped_in_bytes=counts.get("swapped_in_bytes"),
        swap_full=counts.get("swap_full"),
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
