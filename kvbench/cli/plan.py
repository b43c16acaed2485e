"""``kvbench plan``: what a tier would be worth and how large it must be, before anything is measured."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from kvbench.cli import output
from kvbench.cli.commands import AsJson, OutputFile, build_command, option
from kvbench.cli.options import with_options
from kvbench.config.settings import load, read_file
from kvbench.planning.config import PlanConfig
from kvbench.reports.formats.json import to_json


def plan(
    config_file: Annotated[
        Path | None,
        option("Run", "--config", metavar="FILE", help="TOML file with these options; options given here override it. [default: none]"),
    ] = None,
    format: Annotated[
        Literal["terminal", "markdown", "json"],
        option("Output", "--format", metavar="NAME", help="terminal, markdown or json (the whole plan). [default: terminal]"),
    ] = "terminal",
    file: OutputFile = None,
    as_json: AsJson = False,
    plots: Annotated[
        Path | None,
        option("Output", "--plots", metavar="DIR",
               help="Write a plot of each later pass (SVG) into this folder: hits and TTFT against the pool. [default: none]"),
    ] = None,
    **given: Any,
) -> None:  # fmt: skip
    """Say whether a tier would help, and how large it must be.

    Simulates the workload of `kvbench run` on a pool without and with a cpu tier, and looks for the smallest sizes. Nothing is measured,
    no model is loaded. Its defaults are the server of the published measurement: vLLM, Qwen2.5-1.5B, a pool of 21,520 tokens.
    """
    config = load(PlanConfig, "kvbench plan", config_file, read_file(config_file), given)
    kind = "json" if as_json else format
    text = _of_documents(config, kind, plots) if config.trace is None else _of_trace(config, kind, plots)
    output.write(text, file, (path for path in (config_file, config.trace) if path is not None), report=kind == "terminal")


def _of_documents(config: PlanConfig, kind: str, plots: Path | None) -> str:
    from kvbench.planning.plan import make_plan
    from kvbench.reports import plan as reports

    made = make_plan(config)
    if plots is not None:
        from kvbench.reports.plan_plots import plan_plots

        output.save_all(plan_plots(made), plots)
    return {"terminal": reports.terminal, "markdown": reports.markdown, "json": to_json}[kind](made)


def _of_trace(config: PlanConfig, kind: str, plots: Path | None) -> str:
    from kvbench.planning.trace_plan import plan_trace
    from kvbench.reports import trace_plan as reports

    made = plan_trace(config)
    if plots is not None:
        from kvbench.reports.plan_plots import trace_plots

        output.save_all(trace_plots(made), plots)
    return {"terminal": reports.terminal, "markdown": reports.markdown, "json": to_json}[kind](made)


build = partial(
    build_command, with_options(plan, PlanConfig.model_fields), "kvbench plan --kv-tokens 60000 --prefill-rate 8700 --restore-rate 570000"
)
