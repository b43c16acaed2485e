"""What each request went through, as phases on one time axis for all arms (after figure 5 of the article on preemption).

The phases of a request follow one another without a gap from the moment it was sent to its end. A stall is the phases between the two
tokens around it: all that is none of restoring, recomputing and the first step after is waiting, of which the copy to the swap space is
shown by itself. Where the runner tells no events, what came before the first token is one phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Any

from kvbench.analysis.run_view import RunView
from kvbench.analysis.stalls import long_gaps

QUEUED, PREFILL, DECODE = "queued", "prefill", "decode"
WAITING, SWAPPING, RESTORING = "preempted (waiting for room)", "swapping out", "restoring"
RECOMPUTING, FIRST_STEP = "recomputing", "first step after"
UNTIL_FIRST, GAP = "until the first token", "gap"

MOST_ROWS = 32
"""Requests that are shown; of more, those that stood still longest in any arm."""

Event = Mapping[str, Any]
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Phase:
    """One thing that a request went through; seconds."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One request; seconds from the first send of its pass."""

    request_id: str
    position: int
    phases: tuple[Phase, ...]
    token_times_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One arm in its first repeat: the pass with the most preemptions, named where there are several.

    ``span_s`` is the longest of all arms; ``requests`` counts those left out too.
    """

    arm: str
    pass_label: str | None
    rows: tuple[TimelineRow, ...]
    requests: int
    span_s: float

    @property
    def left_out(self) -> int:
        """Requests that are not shown."""
        return self.requests - len(self.rows)


def timelines(view: RunView, always: bool = False, most_rows: int = MOST_ROWS) -> tuple[Timeline, ...]:
    """A timeline for each arm, of the same requests; none where nothing was preempted, unless ``always``."""
    sent = [line for line in view.requests if line["sent_s"] is not None and line["repeat"] == 0]
    preempted: dict[int, int] = {}
    for line in sent:
        preempted[line["pass_index"]] = preempted.get(line["pass_index"], 0) + (line["preemptions"] or 0)
    if not preempted or (not any(preempted.values()) and not always):
        return ()
    index = max(preempted, key=lambda index: (preempted[index], -index))
    by_arm = {arm: [line for line in sent if line["arm"] == arm and line["pass_index"] == index] for arm in view.arms}
    shown = _shown(by_arm.values(), most_rows)
    starts = {arm: min(line["sent_s"] for line in lines) for arm, lines in by_arm.items() if lines}
    span = max(line["end_s"] - starts[line["arm"]] for lines in by_arm.values() for line in lines)
    label = view.labels[index] if len(view.labels) > 1 else None
    return tuple(
        Timeline(arm, label, tuple(_rows(view, by_arm[arm], shown, start)), len(by_arm[arm]), span) for arm, start in starts.items()
    )


def phases(line: Line, events: Sequence[Event]) -> tuple[Phase, ...]:
    """The phases of a request, in order, from ``sent_s`` to ``end_s``; ``events`` are its own, oldest first."""
    times, end = line["token_times_s"], line["end_s"]
    marks = list(_marks(events))
    found = list(_before_first(line["sent_s"], times[0] if times else end, events, marks))
    at = times[0] if times else end
    for begin, after, name in _standstills(line):
        found += [Phase(DECODE, at, begin), *_painted(begin, after, marks, name)]
        at = after
    return tuple(phase for phase in (*found, Phase(DECODE, at, end)) if phase.end_s > phase.begin_s)


def _shown(arms: Iterable[Sequence[Line]], most: int) -> set[int]:
    """Positions of the requests to show."""
    longest: dict[int, float] = {}
    for line in (line for lines in arms for line in lines):
        stalled = max((stall["total_ms"] for stall in line["stalls"]), default=0.0)
        longest[line["position"]] = max(longest.get(line["position"], 0.0), stalled)
    return set(sorted(longest, key=lambda position: (-longest[position], position))[:most])


def _rows(view: RunView, lines: Sequence[Line], shown: set[int], start: float) -> Iterator[TimelineRow]:
    found = sorted((line for line in lines if line["position"] in shown), key=lambda line: (line["position"], line["request_id"]))
    events = view.events({line["request_id"] for line in found})
    for line in found:
        went = phases(line, events.get(line["request_id"], ()))
        moved = tuple(Phase(phase.name, phase.begin_s - start, phase.end_s - start) for phase in went)
        yield TimelineRow(line["request_id"], line["position"], moved, tuple(time - start for time in line["token_times_s"]))


def _before_first(sent: float, first: float, events: Sequence[Event], marks: Sequence[Phase]) -> Iterator[Phase]:
    """From the send to the first token: queued until it is admitted, or until what it goes on from is there."""
    admitted = next((event["time_s"] for event in events if event["event"] in ("admit", "fork")), None)
    if admitted is None:
        yield Phase(UNTIL_FIRST if not events else QUEUED, sent, first)
        return
    away = [Phase(WAITING, begin, end) for begin, end in _absences(events, first)]
    yield from _painted(sent, first, [*marks, *away, Phase(QUEUED, sent, admitted)], PREFILL)


def _absences(events: Sequence[Event], until: float) -> Iterator[tuple[float, float]]:
    """From each preemption to the return after it."""
    turns = [event for event in events if event["event"] in ("preempt", "resume")]
    for one, after in pairwise([*turns, {"event": "resume", "time_s": until}]):
        if one["event"] == "preempt":
            yield one["time_s"], after["time_s"]


def _standstills(line: Line) -> Iterator[tuple[float, float, str]]:
    """Begin and end of each stall, and what its time is that no event explains; of gaps, where the runner does not know."""
    times = line["token_times_s"]
    for stall in line["stalls"]:
        yield times[stall["after_token"] - 1], times[stall["after_token"]], WAITING
    if line["preemptions"] is None and line["chunk_tokens"] is not None:
        chunks = {tokens: chunk for chunk, tokens in enumerate(accumulate(line["chunk_tokens"]))}
        for after_token, _ in long_gaps(line):
            yield times[chunks[after_token]], times[chunks[after_token] + 1], GAP


_LASTED = {"load": RESTORING, "swap in": RESTORING, "swap in stopped": RESTORING, "swap out": SWAPPING}


def _marks(events: Sequence[Event]) -> Iterator[Phase]:
    """What took its time and ended with an event; the copy out last, as it may still be under way when the request is back."""
    for event in sorted(events, key=lambda event: str(event["event"]) == "swap out"):
        name = (RECOMPUTING if event["tokens"] else FIRST_STEP) if event["event"] == "catch up" else _LASTED.get(event["event"])
        if name is not None:
            yield Phase(name, event["time_s"] - event["ms"] / 1e3, event["time_s"])


def _painted(begin: float, end: float, marks: Sequence[Phase], ground: str) -> Iterator[Phase]:
    """The time from begin to end in phases: of the first mark that covers a moment, else of the ground."""
    near = [mark for mark in marks if mark.begin_s < end and mark.end_s > begin]
    edges = sorted({begin, end, *(edge for mark in near for edge in (mark.begin_s, mark.end_s) if begin < edge < end)})
    pieces = [
        (next((mark.name for mark in near if mark.begin_s <= left and mark.end_s >= right), ground), left, right)
        for left, right in pairwise(edges)
    ]
    for name, alike in groupby(pieces, key=lambda piece: piece[0]):
        run_of = list(alike)
        yield Phase(name, run_of[0][1], run_of[-1][2])
