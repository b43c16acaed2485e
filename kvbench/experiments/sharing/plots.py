"""The picture of experiment ``sharing``: the blocks that each arm held, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure

from kvbench.drawing.plots import BLUE, GREY, Plot
from kvbench.drawing.themed import drawn, printable
from kvbench.experiments.sharing.metrics import REFERENCE, HeldSteps

WIDTH, PANEL, AROUND = 7.4, 2.1, 0.7
"""Inches."""


def held_plots(found: Sequence[HeldSteps]) -> Iterator[Plot]:
    """The plot; none where the runner told nothing of its pool."""
    if found:
        yield drawn("blocks", "Blocks held, step by step", held_description(found), held_figure(found))


def held_figure(found: Sequence[HeldSteps]) -> Figure:
    """A panel a pass, a line an arm: the blocks held in each step."""
    passes, arms = (list(dict.fromkeys(names)) for names in ((item.pass_name for item in found), (item.arm for item in found)))
    figure = Figure(figsize=(WIDTH, AROUND + PANEL * len(passes)), layout="constrained")
    panels = figure.subplots(len(passes), 1, squeeze=False)[:, 0]
    for axes, name in zip(panels, passes, strict=True):
        for item in (item for item in found if item.pass_name == name):
            _line(axes, item, arms.index(item.arm))
        axes.set_title(printable(name), loc="left", fontsize=9)
        axes.set_ylabel("blocks")
        axes.set_xlim(left=1)
        axes.set_ylim(bottom=0)
    panels[-1].set_xlabel("step of the pass")
    keys = {label: key for axes in panels for key, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(keys.values(), keys.keys(), loc="outside upper right", ncols=len(keys), frameon=False)
    return figure


def held_description(found: Sequence[HeldSteps]) -> str:
    """The picture in words: the most of each pass and arm."""
    return "; ".join(f"{item.pass_name}, {item.arm}: at most {max(step.blocks for step in item.steps):,} blocks" for item in found) + "."


def _line(axes: Any, item: HeldSteps, arm: int) -> None:
    steps, blocks = range(1, len(item.steps) + 1), [step.blocks for step in item.steps]
    dashes = "--" if item.arm == REFERENCE else "-"
    axes.plot(steps, blocks, dashes, color=(GREY, BLUE)[arm % 2], label=printable(item.arm))
