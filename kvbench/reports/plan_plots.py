"""The plots of a plan, of documents or of a trace, as SVG text: what a pool of any size hits, with and without a tier."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from kvbench.drawing.plots import BLUE, GREY, STYLE, svg
from kvbench.planning.result import Plan
from kvbench.planning.trace_plan import TracePlan


def plan_plots(plan: Plan) -> dict[str, str]:
    """Of each later pass hits, and predicted p50 where there are rates, against the pool: ``plan-<pass>.svg``."""
    labels = [item.pass_label for item in plan.curve[0].passes]
    with mpl.rc_context(STYLE):
        return {
            f"plan-{label.replace(':', '-').replace('#', '-')}.svg": svg(pass_figure(plan, place)) for place, label in enumerate(labels)
        }


def pass_figure(plan: Plan, place: int) -> Figure:
    """The plot of one pass, by its place in the rows of the curve."""
    timed = plan.rates is not None
    figure = Figure(figsize=(7, 5.6 if timed else 3.2), layout="constrained")
    panels = figure.subplots(2 if timed else 1, 1, sharex=True, squeeze=False)[:, 0]
    pools = [row.pool.tokens for row in plan.curve]
    found = [row.passes[place] for row in plan.curve]
    _lines(panels[0], pools, [item.none_rate * 100 for item in found], [item.cpu_rate * 100 for item in found], plan)
    panels[0].set_ylabel("prompt tokens found (%)")
    panels[0].set_ylim(-3, 103)
    if timed:
        _lines(panels[1], pools, [item.none_p50_ms for item in found], [item.cpu_p50_ms for item in found], plan)
        panels[1].set_ylabel("predicted TTFT p50 (ms)")
        panels[1].set_ylim(bottom=0)
    panels[-1].set_xlabel("device pool (tokens)")
    panels[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.suptitle(f"Pass {found[0].pass_label}: {' | '.join(plan.title[1:4])}", fontsize=10)
    panels[0].legend(frameon=False, loc="best")
    return figure


def _lines(axes: Any, pools: list[int], none: list[Any], cpu: list[Any], plan: Plan) -> None:
    axes.plot(pools, none, color=GREY, label="no tier")
    axes.plot(pools, cpu, color=BLUE, label=f"cpu tier of {plan.host.gib:,.2f} GiB", linestyle="--")
    axes.axvline(plan.pool.tokens, color="black", linewidth=0.8, linestyle=":", label="this pool")


def trace_plots(plan: TracePlan) -> dict[str, str]:
    """Hit rate against the pool, from the one on that holds the longest request: ``trace-hits.svg``."""
    pools = [pool for pool in plan.curve if pool.tokens >= plan.longest_tokens] or plan.curve[-1:]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.plot([pool.tokens for pool in pools], [pool.hit_rate * 100 for pool in pools], color=GREY, label="LRU, of block accesses")
        axes.axhline(plan.bound * 100, color="black", linewidth=0.8, linestyle="--", label="pool without a limit")
        if plan.at_pool is not None:
            tiered = plan.at_pool.arms[-1]
            found = (tiered.device + tiered.host) / tiered.prompt * 100
            axes.plot(
                plan.at_pool.device_tokens, found, "o", color=BLUE, label=f"and a cpu tier of {tiered.host_tokens:,}, of prompt tokens"
            )
            axes.axvline(plan.at_pool.device_tokens, color="black", linewidth=0.8, linestyle=":", label="this pool")
        axes.set_xscale("log")
        axes.set_xlabel("device pool (tokens)")
        axes.set_ylabel("hits (%)")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, loc="best")
        figure.suptitle(f"{plan.trace}: {plan.requests:,} requests", fontsize=10)
        return {"trace-hits.svg": svg(figure)}
