"""What an experiment is: a name, its own options, the runners it can use, and its requests. A room each.

A room has a module ``experiment`` with an object ``EXPERIMENT``; nothing else needs to know its name
(:mod:`kvbench.experiments.registry`). Its workload and how its runs are read are in modules of their own, imported when they are needed:
help knows every experiment, and neither makes a workload nor reads a run.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from kvbench.config.run import RunConfig

if TYPE_CHECKING:  # help knows every experiment, and runs none
    from kvbench.experiments.reading import Reading
    from kvbench.experiments.workload import Workload
    from kvbench.runners.base import DeviceCapacity

Options = TypeVar("Options", bound=RunConfig)


@dataclass(frozen=True, slots=True)
class RunnerFacts:
    """What a workload must know of its runner.

    ``vocab``: token ids are below it. ``tokenizer``: the model's ``tokenizer.json``, read only for text. ``capacity``: the device pool.
    """

    vocab: int
    tokenizer: Path
    capacity: DeviceCapacity


class Experiment(Generic[Options]):
    """One experiment.

    Attributes:
        name: the word on the command line, and in every manifest.
        sentence: what it measures.
        example: a command line that runs it.
        order: where it stands among the others in lists.
        options: its options, those of every run included.
        runners: names of the runners that can run it.
        predicted: whether the simulator predicts its requests.
        workload: the module whose ``make_workload`` makes its requests.
        reading: what reads its runs, or the module whose ``READING`` does.
    """

    name: ClassVar[str]
    sentence: ClassVar[str]
    example: ClassVar[str]
    order: ClassVar[int]
    runners: ClassVar[tuple[str, ...]]
    predicted: ClassVar[bool] = False
    workload: ClassVar[str]
    reading: ClassVar[str | Reading]
    options: type[Options]

    def make_workload(self, config: Options, facts: RunnerFacts) -> Workload:
        """The requests of a run.

        Raises:
            UsageError: the files it names cannot be used.
        """
        workload: Workload = importlib.import_module(self.workload).make_workload(config, facts)
        return workload

    def controls(self, config: Options, manifest: Mapping[str, Any]) -> Mapping[str, RunConfig]:
        """Runs that follow this one and speak for it, by name; none unless they were asked for.

        Args:
            manifest: of the run that was measured, which knows the sizes.
        """
        return {}
