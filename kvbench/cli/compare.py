"""``kvbench compare``: compare a run with a base, for people and for CI."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kvbench.cli import output
from kvbench.cli.commands import AsJson, OutputFile, build_command, option
from kvbench.errors import ThresholdFailed, Untrusted, UsageError

if TYPE_CHECKING:
    from kvbench.comparison.compare import Comparison

SAID = 3
"""Failures that the error names; the report has all."""


def compare(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="Run folder, or a file of `kvbench baseline`.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Run folder (or such a file) that is compared with it.")],
    min_effect: Annotated[
        str,
        option("Verdict", "--min-effect", metavar="SHARE",
               help="Least change that counts; its whole interval must lie beyond. [default: 5%]"),
    ] = "5%",
    fail_on: Annotated[
        list[str] | None,
        option("Verdict", "--fail-on", metavar="RULE",
               help="Threshold, as 'ttft_p50[cpu,repeat] > +10%' (change) or 'speedup_p50[cpu,repeat] < 5' (limit). "
               "One that cannot be computed fails. Repeatable. [default: none]"),
    ] = None,
    strict: Annotated[
        bool, option("Verdict", "--strict", help="Fail too where something is inconclusive, as with too few samples. [default: off]")
    ] = False,
    allow: Annotated[
        list[str] | None,
        option("Verdict", "--allow", metavar="FIELD",
               help="Field of model, workload or capacity that may differ; status: compare invalid measurements. "
               "Repeatable. [default: none]"),
    ] = None,
    format: Annotated[
        Literal["terminal", "markdown", "html", "json", "github", "junit"],
        option("Output", "--format", metavar="NAME",
               help="terminal, markdown, html (one page, which needs nothing else), json, github (appended to the job summary "
               "$GITHUB_STEP_SUMMARY names) or junit (XML). [default: terminal]"),
    ] = "terminal",
    file: OutputFile = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compare a run with a base: times, and which hits were lost.

    Tokens by tier must come out the same where requests ran one at a time. Times need 2 repeats or more in both runs, or a base of three
    runs or more. Another model, workload or capacity is refused; on another machine only tokens and speedups count.

    Exit codes: 0 no regression, 2 usage error or runs that cannot be compared, 3 a regression or a threshold, 4 an invalid
    measurement.
    """
    from kvbench.comparison import compare as analysis
    from kvbench.reports import comparison as report
    from kvbench.reports import junit
    from kvbench.reports.formats.json import to_json
    from kvbench.summary.trust import judged_side

    format = "json" if as_json else format
    comparison = analysis.compare(
        judged_side(base), judged_side(new), min_effect=_share(min_effect), allow=allow or (), fail_on=fail_on or ()
    )
    if format == "github":
        _to_github(comparison, file)
    elif format == "html":
        from kvbench.reports import comparison_page  # late: matplotlib

        output.write(comparison_page.render(comparison), file, (base, new))
    else:
        render = {"terminal": report.to_terminal, "markdown": report.to_markdown, "json": to_json, "junit": junit.render}[format]
        output.write(render(comparison), file, (base, new), report=format == "terminal")
    if comparison.untrusted:
        raise Untrusted(f"{report.headline(comparison)[:-1]}; measure again, or compare all the same: --allow {analysis.STATUS}")
    if comparison.regressions or comparison.failed_rules:
        raise ThresholdFailed(report.headline(comparison, SAID)[:-1])
    if comparison.unsaid:
        remark = "; ".join(comparison.unsaid)
        if strict:
            raise ThresholdFailed(f"--strict: {remark}")
        output.say(f"warning: {remark}")


def _share(text: str) -> float:
    """``5%`` or ``0.05``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"--min-effect {text}: a share from 0 to below 1 is expected, as 5% or 0.05")
    return value


def _to_github(comparison: Comparison, file: Path | None) -> None:
    """Append to the job summary where the environment names one, as other steps may have written there; else as any format."""
    from kvbench.reports import github

    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if file is not None or not summary:
        output.write(github.render(comparison), file)
        return
    path = Path(summary)
    held = path.stat().st_size if path.exists() else 0
    output.append(github.render(comparison, github.LIMIT - held), path)


build = partial(build_command, compare, "kvbench compare baseline.json runs/new --strict")
