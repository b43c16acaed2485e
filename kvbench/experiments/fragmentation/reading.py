"""How a run of ``fragmentation`` is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar

from kvbench.analysis.known_noise import KnownNoise
from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_view import Rows, RunView
from kvbench.analysis.speedup import FirstRead
from kvbench.drawing.layout import Style
from kvbench.drawing.numbers import per_cent, within
from kvbench.drawing.plots import Plot
from kvbench.experiments.at_once.reading import AtOnceReading, unfinished, wrong_lengths
from kvbench.experiments.fragmentation import metrics, tables
from kvbench.experiments.fragmentation.metrics import FragmentationRow
from kvbench.experiments.reading import spliced
from kvbench.experiments.verdict import remark

SPOKEN = 16
"""Block size of the paged arm that sentences speak of; where it was not measured, the first one."""


class FragmentationReading(AtOnceReading):
    """What the slots of the pool were, and how many requests ran at once."""

    keys = ("fragmentation",)
    row_types: ClassVar[Mapping[str, type]] = {"fragmentation": metrics.FragmentationRow}
    plots_first = True

    def rows(self, view: RunView) -> Rows:
        """A row an arm."""
        return {"fragmentation": tuple(metrics.rows(view))}

    def title(self, view: RunView) -> Iterator[str]:
        """The requests, and how long they may be."""
        config, count = view.info.config, view.info.requests_per_pass
        if config.get("lengths") is not None:
            yield f"{'' if count is None else f'{count:,} '}requests of {Path(config['lengths']).name}"
        yield from super().title(view)
        if "max_length" in config:
            yield f"at most {config['max_length']:,}"

    def reasons(self, view: RunView) -> Iterator[str]:
        """Preemptions where nothing can run short, requests that are not whole, other tokens."""
        for row in view.rows["fragmentation"]:
            if row.arm.startswith("reserve-") and row.preemptions:
                were = f"there were {row.preemptions:,} preemptions all the same"
                yield f"arm {row.arm} keeps room for every answer from the start, and {were}"
        yield from unfinished(view)
        yield from wrong_lengths(view)
        yield from self.wrong_tokens(view)

    def notes(self, view: RunView) -> Iterator[str]:
        """Arms that were never full, requests that were cut, other tokens."""
        never = [row.arm for row in view.rows["fragmentation"] if row.steps and not row.short_steps]
        if never:
            yield f"every request found room at once in {', '.join(never)}, so nothing can be said of a full pool: raise --requests"
        if cut := view.info.workload.get("cut_requests"):
            total = view.info.requests_per_pass
            yield f"{cut:,} of {total:,} requests were cut to --max-length {view.info.config['max_length']}"
        yield from self.other_tokens(view)

    def sentences(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterator[str]:
        """What was wasted, and what the paged arm gained over the reservations."""
        rows = view.rows["fragmentation"]
        by_arm = {row.arm: row for row in rows}
        base, own = by_arm.get("reserve-max"), by_arm.get("reserve-own")
        paged = by_arm.get(f"paged-{SPOKEN}") or next((row for row in rows if row.arm.startswith("paged-")), None)
        if base is not None and base.waste is not None:
            yield _waste(base, paged, view.info.config["max_length"])
        if base is not None and paged is not None:
            yield from _gain(base, paged, view.noise)
        if own is not None and own.shares is not None:
            later, scattered = per_cent(own.shares.for_later), per_cent(own.shares.scattered)
            yield (
                "reserve-own keeps exactly what each request will use, which no server knows beforehand: it is the kindest reservation "
                f"there is, and still {later} of the pool was kept for tokens to come, and {scattered} was free, enough for the next "
                "request, and scattered."
            )
        if base is not None:
            yield (
                "transformers' default cache (DynamicCache) grows token by token and reserves nothing; its StaticCache "
                "(cache_utils.StaticLayer) is the reservation: max_cache_len slots for each sequence from the start."
            )

    def limits(self, view: RunView) -> Iterator[str]:
        """Lengths that are nobody's."""
        if view.info.config.get("lengths") is None:
            yield "requests of your own lengths: these were drawn (--lengths FILE)"

    def tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        """What ran at once, and the slots."""
        if found := rows["fragmentation"]:
            yield f"At once: mean of the steps in which the next found no room; vs: ÷ {found[0].arm}'s", tables.work(found, style)
            yield "Slots of the pool in these steps (%); waste: reserved and empty ÷ reserved", tables.slots(found, style)

    def csv_lines(self, rows: Rows) -> list[dict[str, Any]]:
        """A line an arm, a column a share."""
        return [_line(row) for row in rows["fragmentation"]]

    def plots(self, view: RunView) -> Iterator[Plot]:
        """What the slots were."""
        from kvbench.experiments.fragmentation.plots import waste_plots  # late: matplotlib

        return waste_plots(view.rows["fragmentation"])


def _line(row: FragmentationRow) -> dict[str, Any]:
    shares = {f"share_{part.name}": None if row.shares is None else getattr(row.shares, part.name) for part in fields(metrics.Shares)}
    return spliced(asdict(row), "shares", shares)


def _waste(base: FragmentationRow, paged: FragmentationRow | None, length: int) -> str:
    said = f"Reserved to {length:,} slots a request, {per_cent(base.waste)} of what was reserved held no token"
    if paged is not None and paged.waste_all is not None:
        waste = per_cent(paged.waste_all) + " over all steps" if paged.waste is None else per_cent(paged.waste)
        said += f"; taken in blocks of {paged.block_size}, {waste}"
    if base.end_wasted is not None and base.end_reserved is not None:
        said += f". At its end the median request left {base.end_wasted:,.0f} of {base.end_reserved:,.0f} reserved slots empty"
    return f"{said}."


def _gain(base: FragmentationRow, paged: FragmentationRow, noise: KnownNoise | None) -> Iterator[str]:
    if base.at_once is None or paged.speed is None or paged.tokens_per_s is None or base.tokens_per_s is None:
        return
    if paged.at_once is None:
        many = f"all {paged.peak_running:,} requests ran at once on {paged.arm} (none waited for room) instead of {base.at_once:.1f}"
    else:
        many = f"{paged.at_once:.1f} requests ran at once on {paged.arm} instead of {base.at_once:.1f}, {paged.times:.1f} times as many"
    speed = f"{paged.tokens_per_s:,.0f} output tokens/s instead of {base.tokens_per_s:,.0f}, {paged.speed:.2f}x"
    yield f"In the same memory, {many}, and gave {speed}{within(paged.speed_interval)}{remark(paged.speed, paged.speed_interval, noise)}."


READING = FragmentationReading()
