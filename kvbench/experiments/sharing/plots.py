"""The picture of experiment ``sharing``: the blocks that each arm held, step by step."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from kvbench.analysis.run_view import RunView
from kvbench.drawing.clean import one_line
from kvbench.drawing.plots import BLUE, GREY, WIDTH, Plot, drawn
from kvbench.experiments.sharing.metrics import REFERENCE, held_blocks

PANEL, AROUND = 2.1, 0.7
"""Inches."""


def held_plots(view: RunView) -> Iterator[Plot]:
    """A panel a pass, a line an arm: the blocks held in each step of the first repeat; none where the runner told nothing of its pool."""
    held = held_blocks(view)
    keys = [(arm, index) for index in view.labels for arm in view.arms if held.get((arm, 0, index))]
    if not keys:
        return
    passes, arms = (list(dict.fromkeys(names)) for names in zip(*((index, arm) for arm, index in keys), strict=True))
    figure = Figure(figsize=(WIDTH, AROUND + PANEL * len(passes)), layout="constrained")
    panels = dict(zip(passes, figure.subplots(len(passes), 1, squeeze=False)[:, 0], strict=True))
    for arm, index in keys:
        blocks = [step.blocks for step in held[arm, 0, index]]
        dashes = "--" if arm == REFERENCE else "-"
        panels[index].plot(range(1, len(blocks) + 1), blocks, dashes, color=(GREY, BLUE)[arms.index(arm) % 2], label=one_line(arm))
    for index, axes in panels.items():
        axes.set_title(one_line(view.labels[index]), loc="left", fontsize=9)
        axes.set_ylabel("blocks")
        axes.set_xlim(left=1)
        axes.set_ylim(bottom=0)
    panels[passes[-1]].set_xlabel("step of the pass")
    handles = {label: key for axes in panels.values() for key, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper right", ncols=len(handles), frameon=False)
    most = [f"{view.labels[index]}, {arm}: at most {max(held[arm, 0, index]).blocks:,} blocks" for arm, index in keys]
    yield drawn("blocks", "Blocks held, step by step", "; ".join(most) + ".", figure)
