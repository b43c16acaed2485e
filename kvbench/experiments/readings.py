"""The reading of each experiment, and runs seen with it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cached_property

from kvbench.analysis.run_view import Rows, RunView
from kvbench.experiments.reading import Reading
from kvbench.experiments.registry import experiments
from kvbench.experiments.tiers.reading import READING


def reading_of(name: str) -> Reading:
    """How runs of an experiment are read; as those of tiers: people's own logs, and experiments that this version does not know."""
    experiment = experiments().get(name)
    return READING if experiment is None else _loaded(experiment.reading)


def readings() -> tuple[Reading, ...]:
    """Those of all experiments, in their order."""
    return tuple(_loaded(experiment.reading) for experiment in experiments().values())


def row_keys() -> tuple[str, ...]:
    """The keys of all rows that only some experiments have, the main one of each first."""
    found = readings()
    return (*(key for reading in found for key in reading.keys[:1]), *(key for reading in found for key in reading.keys[1:]))


def row_types() -> Mapping[str, type | None]:
    """What a row of each of these keys is; ``None``: its experiment does not say."""
    said: dict[str, type] = {}
    for reading in readings():
        said |= reading.row_types
    return {key: said.get(key) for key in row_keys()}


class ExperimentView(RunView):
    """A run, seen as its experiment reads it."""

    @cached_property
    def reading(self) -> Reading:
        """How runs of its experiment are read."""
        return reading_of(self.info.experiment)

    @property
    def judges_tiers(self) -> bool:
        """As the reading says."""
        return self.reading.judges_tiers

    @cached_property
    def rows(self) -> Rows:
        """The reading's rows, made once."""
        return self.reading.rows(self)


def _loaded(reading: str | Reading) -> Reading:
    """The object itself, or that of the module of this name."""
    if isinstance(reading, Reading):
        return reading
    found: Reading = importlib.import_module(reading).READING
    return found
