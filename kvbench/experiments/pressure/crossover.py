"""Recompute against restore at a history of a given length (``kvbench run pressure --context N``), and where one overtakes the other.

Two requests are arranged so that the second is preempted once with the history, and is alone when it comes back
(:mod:`kvbench.experiments.pressure.history`). What is compared is the way from there to its next token: recomputing the history (the
last step of it gives the token), or restoring it and one step. The floors are what the same machine would need if it did nothing but the
arithmetic, or nothing but the copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Any

import pandas as pd

from kvbench.analysis.run_view import RunView
from kvbench.analysis.statistics import known_median
from kvbench.drawing.numbers import milliseconds, times
from kvbench.experiments.verdict import NOTICEABLE, Claim, claim

_WAYS = ["recompute", "restore", "step", "out"]


@dataclass(frozen=True, slots=True)
class CrossoverRow:
    """One length of history; milliseconds, medians of the repeats in which exactly this history was brought back.

    ``recompute_ms``: its steps, the one that gives the next token included. ``restore_ms``: the copy back, ``step_ms``: the step after it,
    ``swap_out_ms``: the copy out, at the preemption. ``ratio``: recompute ÷ (restore + step); ``ratio_range``: its least and most of a
    repeat, from two repeats on. ``recompute_floor_ms``: FLOPs of the history ÷ measured matrix rate; ``restore_floor_ms``: its KV bytes ÷
    measured copy rate, or the simulated link's if that is slower. ``link``: what is said of a simulated link. ``None`` is unknown.
    """

    context: int
    repeats: int
    recompute_ms: float | None
    restore_ms: float | None
    step_ms: float | None
    swap_out_ms: float | None
    ratio: float | None
    ratio_range: tuple[float, float] | None
    recompute_floor_ms: float | None
    restore_floor_ms: float | None
    device: str | None
    link: str | None

    @property
    def restored_ms(self) -> float | None:
        """The copy back and the step after it."""
        return None if self.restore_ms is None or self.step_ms is None else self.restore_ms + self.step_ms


def rows(view: RunView) -> tuple[CrossoverRow, ...]:
    """The row of a run with a ``context``; none of another."""
    info = view.info
    context = info.config.get("context")
    if context is None or not view.requests:
        return ()
    repeats = sorted({line["repeat"] for line in view.requests})
    backs = pd.DataFrame([_back(view, repeat, context) for repeat in repeats], columns=_WAYS, dtype="float64")
    restored = backs["restore"] + backs["step"]
    ratios = (backs["recompute"] / restored.where(restored > 0)).dropna()
    recompute, restore, step, out = (known_median(backs[way].dropna()) for way in _WAYS)
    recompute_floor = restore_floor = None
    if (floors := info.floors) is not None:
        link, copied = info.config.get("link_gbps"), floors["copy_bytes_per_s"]
        recompute_floor = flops(context, info.model, floors) / floors["matrix_flops_per_s"] * 1e3
        restore_floor = context * info.model["bytes_per_token"] / (copied if link is None else min(copied, link * 1e9)) * 1e3
    row = CrossoverRow(
        context=context,
        repeats=len(ratios) or len(backs),
        recompute_ms=recompute,
        restore_ms=restore,
        step_ms=step,
        swap_out_ms=out,
        ratio=known_median(ratios),
        ratio_range=(float(ratios.min()), float(ratios.max())) if len(ratios) > 1 else None,
        recompute_floor_ms=recompute_floor,
        restore_floor_ms=restore_floor,
        device=info.device,
        link=info.link,
    )
    return (row,)


def flops(tokens: int, model: Mapping[str, Any], floors: Mapping[str, Any]) -> float:
    """Floating-point operations of computing a history from nothing, a multiplication and an addition each counted.

    2 · weights · tokens, weights without embeddings; and 4 · layers · heads · head dimension · tokens² / 2 of attention, whose scores and
    sums over values are 2 each, and of which the causal half is computed (Kaplan et al. 2020, arXiv:2001.08361, table 1; Chowdhery et al.
    2022, arXiv:2204.02311, appendix B, which counts the whole square).
    """
    attention = 4 * model["layers"] * floors["heads"] * model["head_dim"] * tokens**2 / 2
    return float(2 * floors["matrix_parameters"] * tokens + attention)


def crossings(found: Sequence[CrossoverRow]) -> list[float]:
    """Lengths of history at which recompute and restore take as long, between neighbouring rows, on logarithmic scales."""
    known = _known(found)
    ends = [(log(context), log(ratio)) for context, ratio in known]
    return [
        exp(here + (there - here) * ratio / (ratio - other))
        for (here, ratio), (there, other) in pairwise(ends)
        if ratio != 0 and (ratio > 0) != (other > 0)
    ]


def read(found: Sequence[CrossoverRow]) -> Iterator[str]:
    """Sentences that read the table: which way was faster and from which history on, and over what the copies went."""
    known = _known(found)
    if not known:
        if found:
            yield "Nothing to compare: the arms recompute and swap are both needed, each with its history brought back whole."
        return
    where = crossings(found)
    if len(known) == 1:
        yield _at(next(row for row in found if row.ratio is not None))
    elif not where:
        least, most = (f"{_factor(ratio)} at {context:,} tokens" for context, ratio in (known[0], known[-1]))
        faster = "restoring" if known[0][1] > 1 else "recomputing"
        yield f"No crossing in the range: {faster} was faster at every history, {least} and {most}."
    elif len(where) == 1:
        late = "restoring" if known[-1][1] > 1 else "recomputing"
        early = "recomputing" if late == "restoring" else "restoring"
        yield f"Up to a history of about {_rounded(where[0])} tokens {early} was faster, from there on {late}."
    else:
        yield f"Recomputing and restoring overtake each other more than once (at about {', '.join(map(_rounded, where))} tokens)."
    yield "The prefix cache is off: all of a history is recomputed, or restored."
    if found[0].link is not None:
        yield f"Copies went over a {found[0].link}."
    elif found[0].device == "cpu":
        yield "Device and host are both RAM here, so a restore is a memory copy; --link-gbps simulates a link."


def _at(row: CrossoverRow) -> str:
    """One history by itself."""
    assert row.ratio is not None
    to_next = f"recomputing took {milliseconds(row.recompute_ms)}, restoring and a step {milliseconds(row.restored_ms)}"
    spread = "" if row.ratio_range is None else f" [{' to '.join(times(bound) for bound in row.ratio_range)} in {row.repeats:,} repeats]"
    if claim(row.ratio, row.ratio_range, None) is Claim.SAME or abs(row.ratio - 1) <= NOTICEABLE:
        said = "both take about as long" if abs(row.ratio - 1) <= NOTICEABLE else f"no clear difference ({times(row.ratio)})"
    else:
        said = f"{'restoring' if row.ratio > 1 else 'recomputing'} is {_factor(row.ratio)} as fast"
    return f"At a history of {row.context:,} tokens, to the next token, {to_next}: {said}{spread}."


def _back(view: RunView, repeat: int, context: int) -> dict[str, float]:
    """How the request came back in one repeat, in ms by way, in the arms in which exactly its history did."""
    found = {}
    if (stall := _stall(view, "recompute", repeat, "recomputed_tokens", context)) is not None:
        found["recompute"] = stall["recomputing_ms"] + stall["first_step_ms"]
    if (stall := _stall(view, "swap", repeat, "swapped_in_tokens", context)) is not None:
        found |= {"restore": stall["restoring_ms"], "step": stall["first_step_ms"]}
        requests = {line["request_id"] for line in view.requests if (line["arm"], line["repeat"]) == ("swap", repeat)}
        events = [event for of_request in view.events(requests).values() for event in of_request if event["event"] == "swap out"]
        found |= {"out": events[0]["ms"]} if events else {}
    return found


def _stall(view: RunView, arm: str, repeat: int, counter: str, tokens: int) -> Any:
    """The one stall of an arm and repeat; ``None`` if there are others, or the counter tells of other tokens."""
    stalls = [stall for line in view.requests if (line["arm"], line["repeat"]) == (arm, repeat) for stall in line["stalls"]]
    counted = [
        line["counters_after"][counter] - line["counters_before"].get(counter, 0)
        for line in view.passes
        if (line["arm"], line["repeat"]) == (arm, repeat)
    ]
    return stalls[0] if len(stalls) == 1 and counted == [tokens] else None


def _known(found: Sequence[CrossoverRow]) -> list[tuple[int, float]]:
    """History and ratio of the rows that have one, in order of the history."""
    return sorted((row.context, row.ratio) for row in found if row.ratio is not None)


def _factor(ratio: float) -> str:
    """By how much the faster way is faster."""
    return times(max(ratio, 1 / ratio))


def _rounded(tokens: float) -> str:
    """Two digits that count: interpolated figures hold no more."""
    return f"{float(f'{tokens:.2g}'):,.0f}"
