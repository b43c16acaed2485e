"""How a run of ``pressure`` is read; with ``--context``, recompute against restore too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from kvbench.analysis.known_noise import KnownNoise
from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import Rows, RunView
from kvbench.analysis.speedup import FirstRead
from kvbench.analysis.stalls import wrong_stalls
from kvbench.analysis.statistics import P99_NEEDS
from kvbench.drawing.layout import Style
from kvbench.drawing.numbers import milliseconds, numbered, within
from kvbench.drawing.plots import Plot
from kvbench.experiments.at_once.metrics import measured
from kvbench.experiments.at_once.reading import AtOnceReading, unfinished, wrong_lengths
from kvbench.experiments.pressure import crossover, metrics, tables
from kvbench.experiments.pressure.metrics import PressureRow
from kvbench.experiments.reading import spliced
from kvbench.experiments.verdict import Claim, claim, remark

WHOLE = {
    "ample": "has room for every request at its end",
    "reserve": "keeps room for every answer from the start",
}
"""Arms in which nothing can run short, and why."""

RECOVERIES = ("recompute", "swap")


class PressureReading(AtOnceReading):
    """What the shortage cost each arm."""

    keys = ("pressure", "crossover")
    row_types: ClassVar[Mapping[str, type]] = {"pressure": metrics.PressureRow, "crossover": crossover.CrossoverRow}
    shows_timelines = True

    def rows(self, view: RunView) -> Rows:
        """A row an arm; and one of recompute against restore, if the run has a history."""
        return {"pressure": tuple(metrics.rows(view)), "crossover": crossover.rows(view)}

    def title(self, view: RunView) -> Iterator[str]:
        """The requests, and their history."""
        yield from super().title(view)
        if (context := view.info.config.get("context")) is not None:
            yield f"history of {context:,}"

    def takes_rate(self, info: RunInfo) -> bool:
        """Two requests that are arranged have no rate."""
        return "context" not in info.config

    def reasons(self, view: RunView) -> Iterator[str]:
        """Preemptions where nothing can run short, requests and stalls that are not whole, other tokens."""
        for row in view.rows["pressure"]:
            if row.arm in WHOLE and row.preemptions:
                were = "was" if row.preemptions == 1 else "were"
                yield f"arm {row.arm} {WHOLE[row.arm]}, and there {were} {numbered(row.preemptions, 'preemption')} all the same"
        yield from unfinished(view)
        yield from wrong_lengths(view)
        wrong = list(wrong_stalls(view.run))
        if wrong:
            yield f"parts of a stall do not sum to the gap between its tokens, in {numbered(len(wrong), 'request')} (the first, {wrong[0]})"
        yield from self.wrong_tokens(view)

    def notes(self, view: RunView) -> Iterator[str]:
        """A pool that holds all, a swap space that was full, other tokens."""
        if view.info.fits:
            sizes = f"the pool ({view.info.device_tokens:,}) holds all requests at their end ({view.info.working_set:,})"
            yield f"fits: {sizes}: nothing runs short; lower --kv-tokens, or raise --requests or --output-tokens"
        for row in view.rows["pressure"]:
            if row.swap_full:
                full = f"{row.swap_full:,} of {row.preemptions:,}"
                yield f"the swap space was full at {full} preemptions, which were recomputed instead; raise --swap-gib"
        yield from self.other_tokens(view)

    def noises(self, view: RunView) -> Iterator[KnownNoise]:
        """Repeats, and where an arm was faster than the one in which nothing runs short: that one does the least work."""
        yield from super().noises(view)
        if view.info.baseline == "ample":
            for arm, own in measured(view, view.info.baseline).items():
                if own.speed is not None and own.speed > 1:
                    yield KnownNoise(own.speed - 1, "arms", f"arm {arm} faster than ample, which does the least work")

    def sentences(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterator[str]:
        """What the shortage cost each arm, and which recovery was cheaper; of a run with a history, which way back was faster."""
        rows = view.rows["pressure"]
        if back := view.rows["crossover"]:
            yield from crossover.read(back)
            return
        if not rows:
            return
        base = rows[0]
        if base.arm != view.info.baseline or base.tokens_per_s is None:
            yield f"The arm {view.info.baseline} did not end, so there is nothing to compare the others with."
            return
        if len(rows) == 1:
            yield f"Only the arm {base.arm} was measured: there is nothing to compare it with; name two (--arm ample --arm recompute)."
        for row in rows[1:]:
            if row.share is not None:
                share = f"{row.share:.2f}x{within(row.share_interval)} of {base.arm}'s {base.tokens_per_s:,.0f}"
                share += remark(row.share, row.share_interval, view.noise)
                yield f"Arm {row.arm} gave {row.tokens_per_s:,.0f} output tokens/s, {share}{_cost(row, base)}."
        recovered = {row.arm: row for row in rows if row.arm in RECOVERIES and row.preemptions}
        if len(recovered) == len(RECOVERIES):
            yield _cheaper(recovered["recompute"], recovered["swap"], view)

    def conditions(self, view: RunView) -> Iterable[str]:
        """The sentences on a history name the link themselves."""
        return () if view.rows["crossover"] else super().conditions(view)

    def tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        """The history's first; the stalls only where a runner says what they were spent on."""
        yield from self.joint_tables(rows, style)
        if found := rows["pressure"]:
            yield f"Tokens and latency (ms; a p99 needs {P99_NEEDS} samples)", tables.latency(found, style)
            yield "What the shortage took (counts: of one repeat)", tables.shortage(found, style)
            if any(row.stalls.sum is not None and row.stalls.sum.waiting_ms is not None for row in found):
                yield "Stalls, by what the time was spent on (ms)", tables.stalls(found, style)

    def csv_lines(self, rows: Rows) -> list[dict[str, Any]]:
        """A line an arm, or one of the history."""
        return [_line(row) for row in rows["crossover"] or rows["pressure"]]

    def joint_tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        """A row a history."""
        if found := rows["crossover"]:
            over = f"; {found[0].link}" if found[0].link is not None else ""
            yield f"Recompute against restore (ms to the next token{over})", tables.back(found, style)

    def joint_sentences(self, rows: Rows) -> Iterator[str]:
        """From which history on which way is faster."""
        return crossover.read(rows["crossover"])

    def joint_plots(self, rows: Rows) -> tuple[Plot, ...]:
        """Both ways over the history."""
        from kvbench.experiments.pressure.plots import crossover_plots  # late: matplotlib

        return crossover_plots(rows["crossover"])

    def joint_json(self, rows: Rows) -> dict[str, Any]:
        """Histories at which both ways take as long."""
        return {"crossings": crossover.crossings(rows["crossover"])}


def _line(row: PressureRow | crossover.CrossoverRow) -> dict[str, Any]:
    """One level of columns: ``stalls`` is their number, ``stall_sum_total_ms`` and so on their times."""
    line = asdict(row)
    if "stalls" not in line:
        return line
    times = line["stalls"]
    count = times.pop("count")
    columns = {f"stall_{kind}_{part}": ms for kind, parts in times.items() for part, ms in (parts or {}).items()}
    return spliced(line, "stalls", {"stalls": count, **columns})


def _cost(row: PressureRow, base: PressureRow) -> str:
    """What the arm paid: preemptions and the longest stall, or fewer at once."""
    if row.preemptions:
        longest = row.stalls.longest
        parts = [numbered(row.preemptions, "preemption")]
        parts += [] if longest is None else [f"the longest stall {milliseconds(longest.total_ms)}"]
        parts += [f"{row.wasted * 100:.0f} % of its work was done before"] if row.wasted else []
        return f": {', '.join(parts)}"
    if row.peak_running is not None and base.peak_running is not None and row.peak_running < base.peak_running:
        ttft = f"TTFT p50 {milliseconds(row.ttft_ms.p50)} instead of {milliseconds(base.ttft_ms.p50)}"
        return f": no request was preempted, and at most {row.peak_running:,} ran at once instead of {base.peak_running:,} ({ttft})"
    return ": no request was preempted" if row.preemptions == 0 else ""


def _cheaper(recompute: PressureRow, swap: PressureRow, view: RunView) -> str:
    """By tokens/s, where the difference is one; and what coming back took, the wait for room left out."""
    best = next((one.arm for one, other in ((swap, recompute), (recompute, swap)) if _above(one, other, view.noise)), None)
    cheaper = "Neither recovery was clearly cheaper here" if best is None else f"Cheaper here: {best}"
    both = f"{swap.tokens_per_s:,.0f} output tokens/s by swap, {recompute.tokens_per_s:,.0f} by recompute"
    took = [f"{milliseconds(ms)} by {row.arm}" for row in (swap, recompute) if (ms := _came_back_ms(row)) is not None]
    back = f"; the wait for room left out, coming back took {', '.join(took)} in the median" if len(took) == 2 else ""
    a_copy = view.info.device == "cpu" and view.info.link is None
    ram = ". Device pool and swap space are both RAM here, and a swap is a memory copy" if a_copy else ""
    return f"{cheaper} ({both}{back}){ram}."


def _above(one: PressureRow, other: PressureRow, noise: KnownNoise | None) -> bool:
    """Whether one gave clearly more, by a claim and by intervals that do not meet."""
    if one.share is None or not other.share:
        return False
    if one.share_interval is not None and other.share_interval is not None and one.share_interval[0] <= other.share_interval[1]:
        return False
    return claim(one.share / other.share, None, noise) is Claim.FASTER


def _came_back_ms(row: PressureRow) -> float | None:
    split = row.stalls.median
    if split is None or split.waiting_ms is None:
        return None
    return sum(part for part in (split.restoring_ms, split.recomputing_ms, split.first_step_ms) if part is not None)


READING = PressureReading()
