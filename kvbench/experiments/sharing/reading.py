"""How a run of ``sharing`` is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import Rows, RunView
from kvbench.analysis.speedup import FirstRead
from kvbench.drawing.layout import Style
from kvbench.drawing.plots import Plot
from kvbench.experiments.at_once.checks import numbered
from kvbench.experiments.at_once.reading import AtOnceReading
from kvbench.experiments.sharing import checks, metrics, sentences, tables


class SharingReading(AtOnceReading):
    """What the answers to one prompt held together."""

    keys = ("sharing",)
    row_types: ClassVar[Mapping[str, type]] = {"sharing": metrics.SharingRow}

    def rows(self, view: RunView) -> Rows:
        """A row for each pass and arm."""
        return {"sharing": metrics.rows(view)}

    def title(self, view: RunView) -> Iterator[str]:
        """The requests, and how many answers each has."""
        yield from super().title(view)
        config = view.info.config
        if "beams" in config:
            yield f"{numbered(config['n'], 'sample')}, {numbered(config['beams'], 'beam')}"

    def requests_of_repeat(self, info: RunInfo) -> int | None:
        """Its answers, pass by pass."""
        answers = info.workload.get("answers")
        return None if answers is None else sum(map(int, answers))

    def reasons(self, view: RunView) -> Iterator[str]:
        """Of :mod:`kvbench.experiments.sharing.checks`."""
        return checks.reasons(view)

    def notes(self, view: RunView) -> Iterator[str]:
        """Of the same."""
        return checks.notes(view)

    def sentences(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterator[str]:
        """What copy-on-write saved."""
        return sentences.read(view.rows["sharing"])

    def limits(self, view: RunView) -> Iterator[str]:
        """How answers share a prompt elsewhere."""
        yield (
            "a server's way of sharing: vLLM 0.32 makes a request of each sample, which share what its prefix cache finds "
            "(vllm/v1/engine/parallel_sampling.py), and searches beams outside its engine, a request of one token for each beam and step "
            "(vllm/entrypoints/generate/beam_search)"
        )

    def tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        """The blocks, and the work."""
        return tables.tables(rows["sharing"], style)

    def plots(self, view: RunView) -> Iterator[Plot]:
        """The blocks held, step by step."""
        from kvbench.experiments.sharing.plots import held_plots  # late: matplotlib

        return held_plots(metrics.held_steps(view))


READING = SharingReading()
