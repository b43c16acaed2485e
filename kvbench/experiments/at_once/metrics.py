"""What experiments of requests at once have in common: rates, counters, and outputs that are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from kvbench.analysis.run_view import Line, RunView
from kvbench.analysis.statistics import Interval, Statistics, between_repeats, geometric_mean, statistics


@dataclass(frozen=True)
class Measured:
    """What one arm measured, in one pass or in all, over all repeats, beside the arm that it is compared with.

    ``lines``: its requests; ``passes``: its finished passes. ``reference`` ``None``: it is the reference itself. ``None`` is unknown.
    """

    lines: Sequence[Line]
    passes: Sequence[Line]
    reference: Measured | None

    @cached_property
    def answered(self) -> list[Line]:
        """The requests that did not fail."""
        return [line for line in self.lines if line["error"] is None]

    @cached_property
    def rates(self) -> dict[int, float]:
        """Output tokens a second of each repeat that ended, by repeat."""
        tokens: Counter[int] = Counter()
        for line in self.answered:
            tokens[line["repeat"]] += line["output_tokens"] or 0
        return {line["repeat"]: tokens[line["repeat"]] / line["wall_s"] for line in self.passes if line["wall_s"]}

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens ÷ pass time, the repeats' median."""
        return median(self.rates.values()) if self.rates else None

    @cached_property
    def _speeds(self) -> list[float]:
        base = (self.reference or self).rates
        return [rate / base[repeat] for repeat, rate in self.rates.items() if repeat in base]

    @property
    def speed(self) -> float | None:
        """Tokens a second ÷ the reference's, the geometric mean over repeats; 1 of the reference."""
        return geometric_mean(self._speeds) if self._speeds else None

    @property
    def speed_interval(self) -> Interval | None:
        """Its 95 % interval; ``None`` below two repeats, and of the reference."""
        return between_repeats(self._speeds) if self.reference is not None and len(self._speeds) > 1 else None

    @property
    def pass_s(self) -> float | None:
        """Pass time, the repeats' median."""
        walls = [line["wall_s"] for line in self.passes if line["wall_s"] is not None]
        return median(walls) if walls else None

    @property
    def ttft_ms(self) -> Statistics:
        """Of the requests that gave a token."""
        return statistics([line["ttft_ms"] for line in self.answered if line["ttft_ms"] is not None])

    @cached_property
    def counts(self) -> dict[str, int]:
        """What each counter grew by in a pass, in the mean; those only that every pass has."""
        names = set.intersection(*(set(line["counters_after"]) for line in self.passes)) if self.passes else set()
        return {
            name: round(fmean(line["counters_after"][name] - line["counters_before"].get(name, 0) for line in self.passes))
            for name in sorted(names)
        }

    @cached_property
    def same_outputs(self) -> list[bool]:
        """Of each answer that can be compared, whether it has the reference's tokens."""
        return [line["output_digest"] == other["output_digest"] for line, other in compared(self.answered, (self.reference or self).lines)]


def measured(view: RunView, reference: str | None, pass_index: int | None = None) -> dict[str, Measured]:
    """What each arm that has a request measured, in one pass or in all.

    Args:
        reference: the arm that the others are compared with.
    """
    lines = {arm: [line for line in own if pass_index in (None, line["pass_index"])] for arm, own in view.by_arm.items()}
    passes = {arm: view.finished(arm, pass_index) for arm in lines}
    base = Measured(lines.get(reference or "", []), passes.get(reference or "", []), None)
    return {arm: base if arm == reference else Measured(own, passes[arm], base) for arm, own in lines.items() if own}


def compared(lines: Iterable[Line], reference: Iterable[Line]) -> Iterator[tuple[Line, Line]]:
    """Answers, and the same ones of the reference arm, where the tokens of both are known."""
    others = {_answer(line): line for line in reference if line.get("output_digest") is not None}
    for line in lines:
        if line.get("output_digest") is not None and (other := others.get(_answer(line))) is not None:
            yield line, other


def _answer(line: Line) -> tuple[int, int, str]:
    """What an answer has in common with the same one of another arm: repeat, pass, and its request id without the arm."""
    return line["repeat"], line["pass_index"], str(line["request_id"]).removeprefix(line["arm"])
