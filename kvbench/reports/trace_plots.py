"""The plot of a trace's plan, as SVG text: what a pool of any size hits, and where the pool asked for and its tier stand."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.figure import Figure

from kvbench.drawing.plots import BLUE, GREY, STYLE, svg
from kvbench.planning.trace_plan import TracePlan


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
