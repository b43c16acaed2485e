"""Thresholds that a user sets on a comparison, ``--fail-on``.

    rule     = metric "[" arm "," pass "]" operator value
    metric   = "ttft_p50" | "speedup_p50" | "computed" | ...     (kvbench.metrics.registry)
    arm      = name | "*"
    pass     = label | "*"                                       (the label of the table: repeat, zipf:1.1, repeat#2)
    operator = ">" | ">=" | "<" | "<="
    value    = [sign] number ["%"]

A value without a sign is a limit for the new run (``speedup_p50[cpu,repeat] < 5``; TTFT in ms, ``host_hit_rate[cpu,*] < 90%``); with a
sign it is the change from the base, in per cent of it or as a difference (``ttft_p50[cpu,repeat] > +10%``, ``computed[*,*] > +0``). The
comparison fails where the rule holds, and where its metric is unknown: a gate that nothing passes through is no gate. It is the metric that
is compared, not its interval.

A rule is on the passes of the new run, and on those it should have and did not finish: there its metric is unknown. Passes that have no
such metric are left out: the baseline arm's have no speedup, and those of an arm without a host tier no ``host`` and ``host_hit_rate``.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvbench.comparison.metrics import PassMetrics
from kvbench.drawing.numbers import numbered
from kvbench.errors import UsageError
from kvbench.metrics.metric import SHARE, Metric
from kvbench.metrics.registry import metrics

EXAMPLE = "ttft_p50[cpu,repeat] > +10%"
_OPERATORS: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_ANY = "*"
_PARTS = (
    ("the name of a figure", re.compile(r"\s*(?P<figure>[a-z0-9_]+)\s*")),
    ("[ARM", re.compile(r"\[\s*(?P<arm>[^\[\],\s]+)\s*")),
    (",PASS", re.compile(r",\s*(?P<pass>[^\[\],\s]+)\s*")),
    ("]", re.compile(r"\]\s*")),
    (">, >=, < or <=", re.compile(r"(?P<operator>[<>]=?)\s*")),
    ("a number", re.compile(r"(?P<sign>[+−-]?)(?P<number>\d+(\.\d+)?)\s*")),
    ("% or the end", re.compile(r"(?P<percent>%?)\s*$")),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One threshold. ``value`` is the number as compared (a share where it was in per cent); ``text`` what the user wrote."""

    text: str
    metric: Metric
    arm: str
    pass_label: str
    operator: str
    value: float
    of_change: bool
    relative: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """A rule on one pass of one arm: what was compared with the rule's value, and whether the rule holds, which is a failure.

    ``failed`` is ``None`` where the metric is unknown, which fails too, and ``unknown`` says why. ``ignored``: why it does not count.
    """

    rule: str
    metric: Metric
    arm: str
    pass_label: str
    base: float | None
    new: float | None
    measured: float | None
    failed: bool | None
    ignored: str | None = None
    unknown: str | None = None

    @property
    def breached(self) -> bool:
        """Whether it fails the comparison: the rule holds, or cannot be computed."""
        return self.failed is not False and self.ignored is None

    def to_json(self) -> dict[str, Any]:
        """The outcome as a plain object."""
        return {("figure" if name == "metric" else name): getattr(self, name) for name in self.__slots__} | {"figure": self.metric.name}


def parse(text: str) -> Rule:
    """The rule of a ``--fail-on``.

    Raises:
        UsageError: with the position at which it is not a rule.
    """
    found: dict[str, str] = {}
    known, at = metrics(), 0
    for expected, pattern in _PARTS:
        match = pattern.match(text, at)
        if match is None:
            raise _wrong(text, at, f"{expected} is expected")
        if "figure" in match.groupdict() and match["figure"] not in known:
            raise _wrong(text, match.start("figure"), f"no figure is called {match['figure']}; there are {', '.join(known)}")
        if match.groupdict().get("percent") and not found["sign"] and known[found["figure"]].unit != SHARE:
            raise _wrong(text, match.start("percent"), "per cent of what? write +10% for a change from the base")
        found |= match.groupdict(default="")
        at = match.end()
    metric, number = known[found["figure"]], float(found["number"]) / (100 if found["percent"] else 1)
    if metric.unit == SHARE and number > 1:
        raise _wrong(text, text.rindex(found["number"]), "a share is from 0 to 1, or from 0% to 100%")
    return Rule(
        text=text,
        metric=metric,
        arm=found["arm"],
        pass_label=found["pass"],
        operator=found["operator"],
        value=-number if found["sign"] in ("-", "−") else number,
        of_change=bool(found["sign"]),
        relative=bool(found["percent"] and found["sign"] and metric.unit != SHARE),
    )


def _wrong(text: str, at: int, why: str) -> UsageError:
    return UsageError(f"--fail-on {text!r}: at character {at + 1}, before {text[at:] or 'the end'!r}: {why} (as in {EXAMPLE!r})")


Key = tuple[str, str]
Table = Mapping[Key, PassMetrics]


def evaluate(rule: Rule, base: Table, new: Table, missing: Sequence[Key], other_machine: bool) -> Iterator[Outcome]:
    """The rule on each pass it names. A change of a time does not count between two machines.

    Args:
        missing: passes of the base that the new run did not finish; ``*`` names them too.

    Raises:
        UsageError: neither run has a pass it names, or none of these has the metric.
    """
    for key in _named(rule, base, new, missing):
        before, after = (side[key].value(rule.metric) if key in side else None for side in (base, new))
        if rule.metric.over_baseline and _over(base) != _over(new):
            before = None  # over another arm it is another metric
        measured = after if not rule.of_change else _change(before, after, rule.relative)
        failed = None if measured is None else _OPERATORS[rule.operator](measured, rule.value)
        measured = measured if measured is None or math.isfinite(measured) else None
        ignored = "measured on another machine" if other_machine and rule.of_change and rule.metric.of_machine else None
        unknown = _unknown(rule, key, base, new) if failed is None else None
        yield Outcome(rule.text, rule.metric, *key, before, after, measured, failed, ignored, unknown)


def _unknown(rule: Rule, key: Key, base: Table, new: Table) -> str:
    """Why the rule's metric is unknown in a pass: what it needs, and what there is."""
    metric = rule.metric
    if key not in new:
        return "the new run did not finish this pass"
    in_new = new[key].value(metric) is None
    if not in_new and key not in base:
        return "the base has no such pass"
    if not in_new and metric.over_baseline and _over(base) != _over(new):
        return f"speedups are over {_over(base)} in the base, and over {_over(new)} in the new run"
    cell, where = (new[key].cell, "") if in_new else (base[key].cell, " in the base")
    there_are = getattr(cell, (metric.row or "").partition(".")[0], cell.ttft_ms).n
    if there_are < metric.needs:
        return f"{metric.name} needs {numbered(metric.needs, 'sample')}, and there {'is' if there_are == 1 else 'are'} {there_are:,}{where}"
    return f"{metric.name} is unknown{where}{f' ({metric.withheld})' if metric.withheld else ''}"


def _over(table: Table) -> str:
    """The arm that speedups are over: the first."""
    return next(iter(table))[0]


def _named(rule: Rule, base: Table, new: Table, missing: Sequence[Key]) -> list[Key]:
    """The passes a rule names that have its metric."""
    known = tuple(dict.fromkeys([*new, *(missing if rule.arm == _ANY else base)]))
    named = [key for key in known if rule.arm in (_ANY, key[0]) and rule.pass_label in (_ANY, key[1])]
    if not named:
        there_are = ", ".join(f"[{arm},{label}]" for arm, label in known)
        raise UsageError(f"--fail-on {rule.text!r}: neither run has [{rule.arm},{rule.pass_label}]; there are {there_are}")
    over = _over(new)
    if rule.metric.over_baseline:
        having, lack = [key for key in named if key[0] != over], f"speedups are over {over}, whose own is 1 by definition"
    elif rule.metric.needs_tier:
        having = [key for key in named if (new[key] if key in new else base[key]).cell.tier]
        lack = f"{', '.join(dict.fromkeys(arm for arm, _ in named))}: no host tier"
    else:
        return named
    if not having:
        raise UsageError(f"--fail-on {rule.text!r}: says nothing ({lack}); name another arm or figure")
    return having


def _change(before: float | None, after: float | None, relative: bool) -> float | None:
    """The change; of 0 nothing is a share, so that more than it is infinitely more."""
    if before is None or after is None:
        return None
    if relative and before == 0:
        return math.inf if after > 0 else 0.0
    return after / before - 1 if relative else after - before
