"""A comparison for a terminal and as Markdown: the headline, what it means, the tables, the notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvbench.comparison.baseline import Baseline
from kvbench.comparison.compare import Comparison, Line
from kvbench.comparison.thresholds import Outcome
from kvbench.comparison.verdict import ChangeVerdict
from kvbench.drawing import layout
from kvbench.drawing.numbers import numbered, per_cent, signed_per_cent
from kvbench.metrics.metric import ComparedBy, Metric
from kvbench.metrics.registry import metrics

_SHORT = {"same within noise": "same", "too few samples": "too few"}
_LEGEND = (
    "Change of the repeats' geometric mean, with the interval it lies in (95 %, all lines together); noise: (max − min) ÷ median of the "
    "repeats. A verdict needs the whole interval beyond {least}; same: within noise; too few: samples."
)


def to_terminal(comparison: Comparison) -> str:
    """Plain text of 80 to 120 columns."""
    sections = [
        "\n".join(layout.wrapped(_side(run), f"{name}: ") for name, run in (("base", comparison.base), ("new", comparison.new))),
        *(f"{heading}\n{table}" for heading, table in _tables(comparison, layout.TERMINAL)),
        layout.wrapped(_legend(comparison)),
        "\n".join(layout.wrapped(note, "note: ") for note in comparison.notes),
        layout.wrapped(headline(comparison)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def to_markdown(comparison: Comparison) -> str:
    """The same as Markdown, the headline first."""
    sections = [bold_headline(comparison)]
    sections += [f"- {name}: {layout.escaped(_side(run))}" for name, run in (("base", comparison.base), ("new", comparison.new))]
    for heading, table in _tables(comparison, layout.MARKDOWN):
        sections += [layout.escaped(heading), table]
    sections.append(_legend(comparison))
    sections += [f"- note: {layout.escaped(note)}" for note in comparison.notes]
    return "\n\n".join(section for section in sections if section) + "\n"


def headline(comparison: Comparison) -> str:
    """The result in one sentence, behind those on unsteady times."""
    if comparison.untrusted:
        return f"Invalid measurement: {'; '.join(comparison.untrusted)}."
    return " ".join([*comparison.unsteady, _result(comparison)])


def _result(comparison: Comparison) -> str:
    failed = [*map(_of_line, comparison.regressions), *map(_of_outcome, comparison.failed_rules)]
    if failed:
        return f"Regression: {'; '.join(failed)}."
    better = sum(line.verdict == ChangeVerdict.BETTER for line in comparison.lines)
    parts = [f"No regression in {len(comparison.lines)} figures", f"{better} better" if better else "", *comparison.unsaid]
    return "; ".join(part for part in parts if part) + "."


def bold_headline(comparison: Comparison) -> str:
    """The headline as Markdown."""
    return f"**{layout.escaped(headline(comparison))}**"


def _of_line(line: Line) -> str:
    where = f"{line.arm}, {line.pass_label}: {line.metric.name} {line.word}"
    if line.detail:
        return f"{where} ({line.detail})"
    return f"{where} ({number(line.metric, line.base)} to {number(line.metric, line.new)}, {change(line)})"


def _of_outcome(outcome: Outcome) -> str:
    values = f"{number(outcome.metric, outcome.base)} to {number(outcome.metric, outcome.new)}"
    return f"--fail-on {outcome.rule} holds for {outcome.arm}, {outcome.pass_label} ({values})"


def _side(run: Baseline) -> str:
    repeats = max((len(cell.repeats) for cell in run.cells), default=0)
    measured = numbered(repeats, "repeat") + (f" in {run.runs} runs" if run.runs > 1 else "")
    parts = [f"kvbench {run.kvbench}" if run.kvbench else "", str(run.created or ""), measured]
    parts += [] if run.status == "complete" else [run.status]
    parts += [] if run.machine.get("link") is None else [f"link {run.machine['link']}"]
    return f"{run.source} ({', '.join(part for part in parts if part)})"


def _legend(comparison: Comparison) -> str:
    timed = any(line.metric.compared is ComparedBy.RATIO for line in comparison.lines)
    return _LEGEND.format(least=f"{comparison.min_effect * 100:g} %") if timed else ""


def _tables(comparison: Comparison, style: layout.Style) -> Iterator[tuple[str, str]]:
    by_ratio = [line for line in comparison.lines if line.metric.compared is ComparedBy.RATIO]
    for heading in dict.fromkeys(metric.heading for metric in metrics().values()):
        if lines := [line for line in by_ratio if line.metric.heading == heading]:
            yield heading.replace("{baseline}", comparison.new.arms[0]), _changes(lines, style)
    if counted := [line for line in comparison.lines if line.metric.compared is not ComparedBy.RATIO]:
        yield "Prompt tokens by tier, and counts (of one repeat)", _counts(counted, style)
    if comparison.outcomes:
        yield "Thresholds (--fail-on)", _thresholds(comparison.outcomes, style)


def _changes(lines: Sequence[Line], style: layout.Style) -> str:
    def cells(line: Line) -> list[layout.Cell]:
        metric, word = line.metric, _SHORT.get(line.word, line.word)
        values = [number(metric, line.base), number(metric, line.new), signed_per_cent(line.change), _interval(line)]
        label = metric.label if metric.label is not None else f"{metric.header} ({metric.unit})" if metric.unit else metric.header
        return [line.arm, line.pass_label, label, *values, per_cent(line.noise), word if line.gates else f"({word})"]

    return layout.table(["arm", "pass", "", "base", "new", "change", "95 %", "noise", "verdict"], 3, map(cells, lines), style)


def _counts(lines: Sequence[Line], style: layout.Style) -> str:
    """A row a pass: one number where both runs have it, else from and to; counts that are 0 throughout have no column."""
    by_pass: dict[tuple[str, str], dict[str, Line]] = {}
    for line in lines:
        by_pass.setdefault((line.arm, line.pass_label), {})[line.metric.name] = line
    counted = {line.metric.name for line in lines if line.base or line.new}
    names = [name for name, metric in metrics().items() if metric.compared is ComparedBy.TOKENS or name in counted]

    rows = [[*place, *(_from_to(found.get(name)) for name in names), _worst(found.values())] for place, found in by_pass.items()]
    return layout.table(["arm", "pass", *names, "verdict"], 2, rows, style)


def _from_to(line: Line | None) -> layout.Cell:
    if line is None:
        return layout.NO_TIER

    def shown(count: layout.Count) -> str:
        base, new = (count(value) if line.metric.show is layout.grouped else number(line.metric, value) for value in (line.base, line.new))
        return new if line.base == line.new else f"{base} to {new}"

    return shown


def _worst(lines: Iterable[Line]) -> str:
    """The verdict of several lines in a word: the gravest."""
    order = list(ChangeVerdict)
    line = min(lines, key=lambda line: order.index(line.verdict))
    return _SHORT.get(line.word, line.word)


def _thresholds(outcomes: Sequence[Outcome], style: layout.Style) -> str:
    rows = [[one.arm, one.pass_label, one.rule, number(one.metric, one.base), number(one.metric, one.new), result(one)] for one in outcomes]
    return layout.table(["arm", "pass", "fails if", "base", "new", "result"], 3, rows, style)


def result(outcome: Outcome) -> str:
    """What a threshold came to, in a word."""
    if outcome.failed is None:
        return "unknown"
    if outcome.failed:
        return "failed" if outcome.ignored is None else "(failed)"
    return "passed"


def number(metric: Metric, value: float | None) -> str:
    """A value as tables show it."""
    return layout.UNKNOWN if value is None else metric.show(value)


def change(line: Line) -> str:
    """The change with its interval, as text."""
    if line.metric.compared is not ComparedBy.RATIO:
        return layout.UNKNOWN if line.change is None else f"{line.change:+,.4g}".replace("-", "−")
    interval = _interval(line)
    return signed_per_cent(line.change) + (f", 95 % {interval}" if interval != layout.UNKNOWN else "")


def _interval(line: Line) -> str:
    if line.low is None or line.high is None:
        return layout.UNKNOWN
    return f"{_signed(line.low)} to {_signed(line.high)}"


def _signed(share: float) -> str:
    """A share as a signed whole per cent; where it is less than one, as 0."""
    text = f"{share * 100:+,.0f}" if abs(share) < 100 else "over +10,000"
    return "0" if text in ("+0", "-0") else text.replace("-", "−")
