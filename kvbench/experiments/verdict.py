"""The one verdict on a run's times, which sentences, notes, reports, comparisons and exit codes share.

A difference counts if it is beyond the largest noise known of the run and its whole interval, where it has one, lies beyond 1. What
invalidates a run is said before anything else, and so is noise above :data:`UNSTEADY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from kvbench.analysis.known_noise import KnownNoise
from kvbench.drawing.numbers import NO_INTERVAL, numbered

if TYPE_CHECKING:  # pandas comes with it
    from kvbench.analysis.run_info import RunInfo
    from kvbench.analysis.statistics import Interval

NOTICEABLE = 0.05
"""Without an interval a difference counts above this share only, however little noise is known."""

UNSTEADY = 0.2
"""Noise above this share makes the times of a run unsteady."""


class Claim(StrEnum):
    """What can be said of an arm.

    ``NOTHING``: its tier gave no token, so no gain is the tier's; ``UNKNOWN``: nothing tells how much of it is noise; ``INVALID``: the
    run proves nothing.
    """

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no clear difference"
    NOTHING = "no token from the tier"
    UNKNOWN = "unknown"
    INVALID = "invalid"


class Standing(StrEnum):
    """What the times of a run are worth. ``UNKNOWN``: nothing in the run tells its noise."""

    INVALID = "invalid"
    UNSTEADY = "unsteady"
    STEADY = "steady"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ArmVerdict:
    """The verdict on one arm, in one pass where ``pass_label`` names it. ``words``: a sentence; ``measured``: the same without a claim."""

    arm: str
    pass_label: str | None
    kind: Claim
    words: str
    measured: str


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict on a run. ``words``: a sentence that stands before all others; ``None`` where nothing need be said first."""

    standing: Standing
    words: str | None
    noise: KnownNoise | None
    arms: tuple[ArmVerdict, ...]

    def over(self, arms: Sequence[ArmVerdict], sentences: Iterable[str]) -> Iterator[str]:
        """The sentences of a report behind the verdict's own; of an invalid run without the claims of ``arms``."""
        if self.words is not None:
            yield self.words
        said = {before.words: after.words for before, after in zip(arms, self.arms, strict=True)}
        yield from (said.get(sentence, sentence) for sentence in sentences)


def run_verdict(reasons: Sequence[str], noise: KnownNoise | None, arms: Iterable[ArmVerdict]) -> RunVerdict:
    """The verdict on a run; ``reasons``: not to trust it."""
    if reasons:
        words = f"Invalid measurement ({numbered(len(reasons), 'reason')} below): no conclusion can be drawn from its figures."
        silent = (replace(arm, kind=Claim.INVALID, words=arm.measured) for arm in arms)
        return RunVerdict(Standing.INVALID, words, noise, tuple(silent))
    said = unsteady(noise)
    standing = Standing.UNKNOWN if noise is None else Standing.STEADY if said is None else Standing.UNSTEADY
    return RunVerdict(standing, said, noise, tuple(arms))


def unsteady(noise: KnownNoise | None) -> str | None:
    """That the times are unsteady, and where the noise was seen; ``None``: they are not, as far as is known."""
    if noise is None or noise.share <= UNSTEADY:
        return None
    by = f"the same work differed by {noise.share * 100:.0f} % within this run ({noise.where})"
    return f"Unsteady times: {by}; a smaller difference is noise."


def unsteady_note(noise: KnownNoise | None, info: RunInfo) -> Iterator[str]:
    """What to do about unsteady times; of a log nothing."""
    if noise is not None and unsteady(noise) is not None and not info.of_log:
        repeat = "repeat (--repeats 3)" if int(info.config.get("repeats", 1)) < 3 else "repeat more often (--repeats)"
        yield (
            f"unsteady times (noise {noise.share * 100:.0f} %; token counts are exact): other programs may have used the cores; close "
            f"them, use fewer threads (OMP_NUM_THREADS=1), or {repeat}"
        )


def claim(ratio: float | None, interval: Interval | None, noise: KnownNoise | None) -> Claim:
    """What a ratio says, above 1 being faster: nothing unless it is beyond the noise, and 1 outside its interval."""
    if ratio is None or (interval is None and noise is None):
        return Claim.UNKNOWN
    low, high = interval or (ratio, ratio)
    margin = 1 + max(0.0 if noise is None else noise.share, NOTICEABLE if interval is None else 0.0)
    if low > 1 and ratio > margin:
        return Claim.FASTER
    return Claim.SLOWER if high < 1 and ratio < 1 / margin else Claim.SAME


def remark(ratio: float | None, interval: Interval | None, noise: KnownNoise | None) -> str:
    """What stands behind a ratio in a sentence: that it is no difference, or that nothing tells whether it is one."""
    return {Claim.UNKNOWN: NO_INTERVAL, Claim.SAME: f", {Claim.SAME}"}.get(claim(ratio, interval, noise), "")
