"""A comparison as JUnit XML, which CI systems show as tests: a case for each arm, pass and metric, and for each threshold."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from kvbench.comparison.compare import Comparison, Line
from kvbench.comparison.thresholds import Outcome
from kvbench.comparison.verdict import ChangeVerdict
from kvbench.drawing.clean import clean
from kvbench.reports import comparison as report

_SUITE = "kvbench compare"


def render(comparison: Comparison) -> str:
    """One suite: a regression or breached threshold is a failure, what is inconclusive or unsteady is skipped, an invalid run an error."""
    cases = list(_cases(comparison))
    count = {name: sum(case.find(name) is not None for case in cases) for name in ("failure", "error", "skipped")}
    counts = {"tests": len(cases), "failures": count["failure"], "errors": count["error"], "skipped": count["skipped"]}
    attributes = {"name": _SUITE, **{name: str(value) for name, value in counts.items()}}
    suites = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(suites, "testsuite", attributes)
    suite.extend(cases)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _cases(comparison: Comparison) -> Iterator[ElementTree.Element]:
    for reason in comparison.untrusted:
        yield _case("run", "is to be trusted", "error", reason)
    for words in comparison.unsteady:
        yield _case("run", "has steady times", "skipped", words)
    for line in comparison.lines:
        yield _of_line(line)
    for arm, label in comparison.missing:
        yield _case(f"{arm}.{label}", "pass", "skipped", "the new run did not finish this pass")
    for outcome in comparison.outcomes:
        yield _of_outcome(outcome)


def _of_line(line: Line) -> ElementTree.Element:
    values = report.from_to(line.metric, line.base, line.new)
    said = f"{line.word}: {values}, {report.change(line)}" + (f"; {line.detail}" if line.detail else "")
    kind = None
    if line.verdict in (ChangeVerdict.INCONCLUSIVE, ChangeVerdict.UNKNOWN):
        kind = "skipped"
    elif line.verdict == ChangeVerdict.WORSE:
        kind = "failure" if line.gates else "skipped"
    if kind == "skipped" and line.verdict == ChangeVerdict.WORSE:
        said = f"measured on another machine, so it does not count: {said}"
    return _case(f"{line.arm}.{line.pass_label}", line.metric.name, kind, said)


def _of_outcome(outcome: Outcome) -> ElementTree.Element:
    kind = "failure" if outcome.breached else "skipped" if outcome.failed is not False else None
    said = outcome.unknown or report.from_to(outcome.metric, outcome.base, outcome.new)
    return _case(
        f"{outcome.arm}.{outcome.pass_label}", f"--fail-on {outcome.rule}", kind, f"{outcome.ignored or report.result(outcome)}: {said}"
    )


def _case(place: str, name: str, kind: str | None, said: str) -> ElementTree.Element:
    """A case; ``kind``: ``failure``, ``error``, ``skipped``, or ``None`` for one that passed, whose words go to its output."""
    case = ElementTree.Element("testcase", {"classname": clean(f"kvbench.{place}"), "name": clean(name), "time": "0"})
    if kind is None:
        ElementTree.SubElement(case, "system-out").text = clean(said)
    else:
        ElementTree.SubElement(case, kind, {"message": clean(said)})
    return case
