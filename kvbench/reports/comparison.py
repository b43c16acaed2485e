"""A comparison for a terminal and as Markdown: the tables, the notes, what fails, and a summary line at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kvbench.comparison.baseline import Baseline
from kvbench.comparison.compare import Comparison, Line
from kvbench.comparison.thresholds import Outcome
from kvbench.comparison.verdict import ChangeVerdict
from kvbench.drawing import layout
from kvbench.drawing.numbers import numbered, per_cent, signed_per_cent
from kvbench.metrics.metric import SHARE, ComparedBy, Metric
from kvbench.metrics.registry import metrics

_SHORT = {"same within noise": "same"}
_MARKS = {ChangeVerdict.WORSE: "-", ChangeVerdict.BETTER: "+", ChangeVerdict.SAME: "=", ChangeVerdict.MOVED: "~"}
_DOUBT = "?"
_LEGEND = (
    "Change of the repeats' geometric mean, with the interval it lies in (95 %, all lines together); noise: (max − min) ÷ median of the "
    "repeats. A verdict needs the whole interval beyond {least}; same: within noise; inconclusive: too few samples."
)


def to_terminal(comparison: Comparison) -> str:
    """Plain text of 80 to 120 columns, the summary line last."""
    tables = [f"{heading}\n{table}" for heading, table in tables_of(comparison, layout.TERMINAL)]
    sections = [
        "\n".join(layout.wrapped(_side(run), f"{name}: ") for name, run in _sides(comparison)),
        *tables,
        layout.wrapped(legend(comparison)),
        "\n".join(layout.wrapped(note, "note: ") for note in comparison.notes),
        "\n".join(layout.wrapped(said, mark) for mark, said in told(comparison)),
        tally(comparison),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def to_markdown(comparison: Comparison) -> str:
    """The same as Markdown, the headline first."""
    sections = [bold_headline(comparison)]
    sections += [f"- {name}: {layout.escaped(_side(run))}" for name, run in _sides(comparison)]
    for heading, table in tables_of(comparison, layout.MARKDOWN):
        sections += [layout.escaped(heading), table]
    sections.append(legend(comparison))
    sections += [f"- note: {layout.escaped(note)}" for note in comparison.notes]
    sections.append(tally(comparison))
    return "\n\n".join(section for section in sections if section) + "\n"


def fails(comparison: Comparison) -> bool:
    """Whether it ends with another exit code than 0 whatever the options say."""
    return bool(comparison.untrusted or comparison.regressions or comparison.failed_rules)


def sides_in_words(comparison: Comparison) -> tuple[str, ...]:
    """Both sides: what each was read from, when it was measured, and how often."""
    return tuple(f"{name}: {_side(run)}" for name, run in _sides(comparison))


def _sides(comparison: Comparison) -> tuple[tuple[str, Baseline], ...]:
    return ("base", comparison.base), ("new", comparison.new)


def headline(comparison: Comparison, most: int | None = None) -> str:
    """The result in one sentence, with all that fails; ``most``: with the first so many regressions and thresholds."""
    if comparison.untrusted:
        return f"Invalid measurement: {'; '.join(comparison.untrusted)}."
    worse, breached = list(map(_of_line, comparison.regressions)), list(map(_of_outcome, comparison.failed_rules))
    if not (worse or breached):
        return " ".join([*comparison.unsteady, "; ".join([tally(comparison).removesuffix("."), *comparison.unsaid]) + "."])
    shown = [*worse[:most], *breached[:most]]
    more = [f"and {left:,} more"] if (left := len(worse) + len(breached) - len(shown)) else []
    text = ("Regression: " if worse else "") + "; ".join([*shown, *more])
    return " ".join([*comparison.unsteady, f"{text[0].upper()}{text[1:]}."])


def bold_headline(comparison: Comparison) -> str:
    """The headline as Markdown."""
    return f"**{layout.escaped(headline(comparison))}**"


def tally(comparison: Comparison) -> str:
    """The summary line: how many figures came to which verdict, each of them a cell of the tables, and how many thresholds are breached."""
    found = Counter(
        "not counted" if line.verdict == ChangeVerdict.WORSE and not line.gates else str(line.verdict) for line in comparison.lines
    )
    order = [*map(str, ChangeVerdict), "not counted"]
    counts = ", ".join(f"{found[word]:,} {word}" for word in order if found[word])
    rules = (
        f"; {len(comparison.failed_rules):,} of {numbered(len(comparison.outcomes), 'threshold')} breached" if comparison.outcomes else ""
    )
    what = "Regression" if comparison.regressions else "Threshold breached" if comparison.failed_rules else "No regression"
    return f"{'Invalid measurement' if comparison.untrusted else what} ({numbered(len(comparison.lines), 'figure')}: {counts}{rules})."


def told(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """What fails and what could not be said, each behind its mark."""
    failed = (
        *(f"invalid measurement: {reason}" for reason in comparison.untrusted),
        *map(_of_line, comparison.regressions),
        *map(_of_outcome, comparison.failed_rules),
    )
    yield from ((f"{_MARKS[ChangeVerdict.WORSE]} ", said) for said in failed)
    unsteady = () if comparison.untrusted else comparison.unsteady
    yield from ((f"{_DOUBT} ", said) for said in (*unsteady, *comparison.unsaid))


def _of_line(line: Line) -> str:
    """A line in words; where the verdict names the metric already, the metric alone."""
    name, word = line.metric.name, line.word
    what = word.replace(name, f"prompt tokens {name}") if name in word else f"{name} {word}"
    return f"{line.arm}, {line.pass_label}: {what} ({line.detail or f'{from_to(line.metric, line.base, line.new)}, {change(line)}'})"


def _of_outcome(outcome: Outcome) -> str:
    place = f"{outcome.arm}, {outcome.pass_label}"
    if outcome.unknown is not None:
        return f"threshold cannot be computed: {outcome.rule} ({place}: {outcome.unknown})"
    return f"threshold breached: {outcome.rule} ({place}: {from_to(outcome.metric, outcome.base, outcome.new)})"


def from_to(metric: Metric, base: float | None, new: float | None) -> str:
    """Both values with their unit, which stands once: ``14.0 to 16.8 ms``. What the base does not know is left out."""
    values = " to ".join(number(metric, value) for value in (base, new) if value is not None or base is not None) or layout.UNKNOWN
    shown = metric.show(1.0)
    return values if not metric.unit or metric.unit == SHARE or shown.endswith(metric.unit) else f"{values} {metric.unit}"


def _side(run: Baseline) -> str:
    repeats = max((len(cell.repeats) for cell in run.cells), default=0)
    measured = numbered(repeats, "repeat") + (f" in {run.runs} runs" if run.runs > 1 else "")
    parts = [f"kvbench {run.kvbench}" if run.kvbench else "", str(run.created or ""), measured]
    parts += [] if run.status == "complete" else [run.status]
    parts += [] if run.machine.get("link") is None else [f"link {run.machine['link']}"]
    return f"{run.source} ({', '.join(part for part in parts if part)})"


def legend(comparison: Comparison) -> str:
    """What the columns of changes are; empty where there are none."""
    timed = any(line.metric.compared is ComparedBy.RATIO for line in comparison.lines)
    return _LEGEND.format(least=f"{comparison.min_effect * 100:g} %") if timed else ""


def tables_of(comparison: Comparison, style: layout.Style) -> Iterator[tuple[str, str]]:
    """Headings and tables; together they have a cell for each figure."""
    by_ratio = [line for line in comparison.lines if line.metric.compared is ComparedBy.RATIO]
    for heading in dict.fromkeys(metric.heading for metric in metrics().values()):
        if lines := [line for line in by_ratio if line.metric.heading == heading]:
            named = heading.replace("{baseline}", comparison.new.arms[0])
            yield f"{named}: {numbered(len(lines), 'figure')}", _changes(lines, style)
    if counted := [line for line in comparison.lines if line.metric.compared is not ComparedBy.RATIO]:
        yield f"Prompt tokens by tier, and counts (of one repeat): {numbered(len(counted), 'figure')}", _counts(counted, style)
    if comparison.outcomes:
        yield "Thresholds (--fail-on)", _thresholds(comparison.outcomes, style)


def _changes(lines: Sequence[Line], style: layout.Style) -> str:
    def cells(line: Line) -> list[layout.Cell]:
        metric, word = line.metric, _word(line)
        values = [number(metric, line.base), number(metric, line.new), _signed(line.change, 1), _interval(line)]
        label = metric.label if metric.label is not None else f"{metric.header} ({metric.unit})" if metric.unit else metric.header
        noise = per_cent(line.noise).removesuffix(" %")
        return [line.arm, line.pass_label, label, *values, noise, mark(line), word if line.gates else f"({word})"]

    return layout.table(["arm", "pass", "", "base", "new", "change %", "95 %", "noise %", "", "verdict"], 3, map(cells, lines), style)


def _counts(lines: Sequence[Line], style: layout.Style) -> str:
    """A row a pass: one number where both runs have it, else from and to."""
    by_pass: dict[tuple[str, str], dict[str, Line]] = {}
    for line in lines:
        by_pass.setdefault((line.arm, line.pass_label), {})[line.metric.name] = line
    counted = {line.metric.name for line in lines}
    names = [name for name, metric in metrics().items() if metric.compared is ComparedBy.TOKENS or name in counted]

    rows = [[*place, *(_from_to(found.get(name)) for name in names), *_worst(found.values())] for place, found in by_pass.items()]
    return layout.table(["arm", "pass", *names, "", "verdict"], 2, rows, style)


def _from_to(line: Line | None) -> layout.Cell:
    if line is None:
        return layout.NO_TIER

    def shown(count: layout.Count) -> str:
        base, new = (count(value) if line.metric.show is layout.grouped else number(line.metric, value) for value in (line.base, line.new))
        return new if line.base == line.new else f"{base} to {new}"

    return shown


def _worst(lines: Iterable[Line]) -> tuple[str, str]:
    """The verdict of several lines, as its mark and its word: the gravest."""
    order = list(ChangeVerdict)
    line = min(lines, key=lambda line: order.index(line.verdict))
    return mark(line), _word(line)


def _word(line: Line) -> str:
    return _SHORT.get(line.word, line.word)


def mark(line: Line) -> str:
    """The verdict as a sign, which needs no colour: + better, - worse, = same, ~ changed, ? inconclusive or unknown."""
    return _MARKS.get(line.verdict, _DOUBT)


def _thresholds(outcomes: Sequence[Outcome], style: layout.Style) -> str:
    def cells(one: Outcome) -> list[layout.Cell]:
        sign = _MARKS[ChangeVerdict.WORSE] if one.breached else _DOUBT if one.failed is not False else _MARKS[ChangeVerdict.BETTER]
        return [one.arm, one.pass_label, one.rule, number(one.metric, one.base), number(one.metric, one.new), sign, result(one)]

    return layout.table(["arm", "pass", "fails if", "base", "new", "", "result"], 3, map(cells, outcomes), style)


def result(outcome: Outcome) -> str:
    """What a threshold came to, in a word."""
    word = "passed" if outcome.failed is False else "unknown" if outcome.failed is None else "breached"
    return f"({word})" if outcome.ignored is not None and not outcome.breached and word != "passed" else word


def number(metric: Metric, value: float | None) -> str:
    """A value as tables show it."""
    return layout.UNKNOWN if value is None else metric.show(value)


def change(line: Line) -> str:
    """The change with its interval, as text."""
    if line.metric.compared is not ComparedBy.RATIO:
        return layout.UNKNOWN if line.change is None else f"{line.change:+,.4g}".replace("-", "−")
    interval = _interval(line)
    return signed_per_cent(line.change) + (f", 95 % interval {interval} %" if interval != layout.UNKNOWN else "")


def _interval(line: Line) -> str:
    if line.low is None or line.high is None:
        return layout.UNKNOWN
    return f"{_signed(line.low)} to {_signed(line.high)}"


def _signed(share: float | None, digits: int = 0) -> str:
    """A share in per cent with its sign and without theirs; where it is less than the last digit, as 0."""
    if share is None:
        return layout.UNKNOWN
    text = f"{share * 100:+,.{digits}f}" if abs(share) < 100 else "over +10,000"
    return text[1:] if not text.strip("+-0.") else text.replace("-", "−")
