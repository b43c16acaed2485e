"""What a server's counters, its process and the client that drove it say against a run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from kvbench.analysis.run_view import Line, RunView

STARTED = "server_started_ms"
"""Among the counters, and none: when the server's process started."""

LAG_TICK_S = 0.01
"""The client looks so often how late its event loop is."""

NOTICEABLE_LAG = 0.05
"""A client whose 99th percentile of lag is above this share of a pass's median TTFT may explain some of it."""


def reasons(view: RunView) -> Iterator[str]:
    """Why not to trust the run, one sentence each."""
    yield from _backwards(view)
    yield from _restarted(view)
    yield from _foreign_traffic(view)
    for line in view.passes:
        for fault in line.get("faults") or ():
            yield f"arm {line['arm']}, repeat {line['repeat']}, pass {line['pass']}: {fault}"


def notes(view: RunView) -> Iterator[str]:
    """What a reader must know, one sentence each: a client so late that it may explain what was measured."""
    worst: tuple[float, str] | None = None
    for line in view.passes:
        lag = _lag_p99(line)
        ttft = None if lag is None else _median_ttft(view, line)
        if ttft and lag is not None and lag > NOTICEABLE_LAG * ttft and (worst is None or lag / ttft > worst[0]):
            worst = lag / ttft, f"arm {line['arm']}, pass {line['pass']}: its lag's p99 is {lag:.1f} ms, the TTFT's p50 {ttft:.1f} ms"
    if worst is not None:
        remedy = "free a core, or lower --concurrency or --rate"
        yield f"the client itself was late and may explain some of what was measured ({worst[1]}); {remedy}"


def _backwards(view: RunView) -> Iterator[str]:
    """Counters only grow within an arm and repeat; one that fell was reset or restarted, and its differences mean nothing."""
    fell: dict[tuple[str, str], str] = {}
    for line, before, after in _readings(view):
        for name in sorted((before.keys() & after.keys()) - {STARTED}):
            if after[name] < before[name]:
                where = f"repeat {line['repeat']}, pass {line['pass']}: from {before[name]:,} to {after[name]:,}"
                fell.setdefault((line["arm"], name), f"counter {name} of arm {line['arm']} went backwards, first in {where}")
    yield from fell.values()


def _restarted(view: RunView) -> Iterator[str]:
    for line, before, after in _readings(view):
        if STARTED in before and before[STARTED] != after.get(STARTED):
            yield f"the server of arm {line['arm']} was restarted in repeat {line['repeat']}, before the end of pass {line['pass']}"
            return


def _foreign_traffic(view: RunView) -> Iterator[str]:
    """Requests and prompt tokens that a server counted and that were not ours, within a pass or between two."""
    sent: dict[tuple[Any, ...], list[Line]] = {}
    for line in view.requests:
        if line["sent_s"] is not None:
            sent.setdefault(_pass(line), []).append(line)
    for line, before, after in _readings(view):
        within = after is line["counters_after"]
        ours = sent.get(_pass(line), []) if within else []
        finished = after.get("finished", 0) - before.get("finished", 0) - len(ours)
        tokens = after.get("prompt_tokens", 0) - before.get("prompt_tokens", 0) - sum(item["prompt_tokens_sent"] for item in ours)
        if before and (finished > 0 or tokens > 0):
            when = "in" if within else "before"
            yield (
                f"foreign traffic: {when} pass {line['pass']} of arm {line['arm']}, repeat {line['repeat']}, the server counted "
                f"{max(finished, 0):,} requests and {max(tokens, 0):,} prompt tokens that were not of this run"
            )
            return


def _readings(view: RunView) -> Iterator[tuple[Line, dict[str, int], dict[str, int]]]:
    """Each two readings that follow each other on one server, with the pass that the later one belongs to."""
    last: dict[tuple[str, int], dict[str, int]] = {}
    for line in view.passes:
        server = line["arm"], line["repeat"]
        for before, after in pairwise([last.get(server, {}), line["counters_before"], line["counters_after"]]):
            yield line, before, after
        last[server] = line["counters_after"]


def _pass(line: Line) -> tuple[Any, ...]:
    return line["arm"], line["repeat"], line["pass_index"]


def _median_ttft(view: RunView, line: Line) -> float | None:
    times = [item["ttft_ms"] for item in view.requests if _pass(item) == _pass(line) and item["ttft_ms"] is not None]
    return float(np.median(times)) if times else None


def _lag_p99(line: Line) -> float | None:
    """The 99th percentile of the client's lag in ms: only lags above a millisecond were kept, of one look every tick."""
    lags = line.get("client_lags_ms")
    if lags is None or not line["wall_s"]:
        return None
    beyond = int(line["wall_s"] / LAG_TICK_S * 0.01)
    return sorted(lags, reverse=True)[beyond] if len(lags) > beyond else 0.0
