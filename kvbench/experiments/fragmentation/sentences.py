"""Sentences that read a run of ``fragmentation``: what was wasted, and how many requests ran at once in the same memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.analysis.run_info import RunInfo
from kvbench.experiments.fragmentation.metrics import FragmentationRow

SPOKEN = 16
"""Block size of the paged arm that sentences speak of; where it was not measured, the first one."""


def read(rows: Sequence[FragmentationRow], info: RunInfo) -> Iterator[str]:
    """What the paged arm gained over the reservations."""
    if not rows:
        return
    by_arm = {row.arm: row for row in rows}
    base, own = by_arm.get("reserve-max"), by_arm.get("reserve-own")
    paged = by_arm.get(f"paged-{SPOKEN}") or next((row for row in rows if row.arm.startswith("paged-")), None)
    if base is not None and base.waste is not None:
        yield _waste(base, paged, info.config["max_length"])
    if base is not None and paged is not None:
        yield from _gain(base, paged)
    if own is not None and own.shares is not None:
        yield _kindest(own)
    if base is not None:
        yield (
            "transformers' default cache (DynamicCache) grows token by token and reserves nothing; its StaticCache "
            "(cache_utils.StaticLayer) is the reservation: max_cache_len slots for each sequence from the start."
        )


def _waste(base: FragmentationRow, paged: FragmentationRow | None, length: int) -> str:
    said = f"Reserved to {length:,} slots a request, {_per_cent(base.waste)} of what was reserved held no token"
    if paged is not None and paged.waste_all is not None:
        waste = _per_cent(paged.waste_all) + " over all steps" if paged.waste is None else _per_cent(paged.waste)
        said += f"; taken in blocks of {paged.block_size}, {waste}"
    if base.end_wasted is not None and base.end_reserved is not None:
        said += f". At its end the median request left {base.end_wasted:,.0f} of {base.end_reserved:,.0f} reserved slots empty"
    return f"{said}."


def _gain(base: FragmentationRow, paged: FragmentationRow) -> Iterator[str]:
    if base.at_once is None or paged.speed is None or paged.tokens_per_s is None or base.tokens_per_s is None:
        return
    if paged.at_once is None:
        many = f"all {paged.peak_running:,} requests ran at once on {paged.arm} (none waited for room) in place of {base.at_once:.1f}"
    else:
        many = f"{paged.at_once:.1f} requests ran at once on {paged.arm} in place of {base.at_once:.1f}, {paged.times:.1f} times as many"
    speed = f"{paged.tokens_per_s:,.0f} output tokens/s in place of {base.tokens_per_s:,.0f}, {paged.speed:.2f}x"
    if paged.speed_interval is None:
        tail = ", with nothing to tell how much of it is noise (--repeats 3)"
    else:
        low, high = paged.speed_interval
        tail = f" [95 % {low:.2f} to {high:.2f}]"
    yield f"In the same memory, {many}, and gave {speed}{tail}."


def _kindest(own: FragmentationRow) -> str:
    assert own.shares is not None
    return (
        "reserve-own keeps exactly what each request will use, which no server knows beforehand: it is the kindest reservation there is, "
        f"and still {_per_cent(own.shares.for_later)} of the pool was kept for tokens to come, and {_per_cent(own.shares.scattered)} was "
        "free, enough for the next request, and scattered."
    )


def _per_cent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.1f} %"
