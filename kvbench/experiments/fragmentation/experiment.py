"""Experiment ``fragmentation``, as it is run."""

from __future__ import annotations

from kvbench.experiments.experiment import Experiment, RunnerFacts
from kvbench.experiments.fragmentation.options import FragmentationOptions
from kvbench.experiments.workload import Workload


class FragmentationExperiment(Experiment[FragmentationOptions]):
    """The same requests, reserved or paged."""

    name = "fragmentation"
    sentence = "The same requests in the same memory, reserved in one piece or paged: the slots that hold no token."
    example = "kvbench run fragmentation --requests 32"
    order = 4
    runners = ("engine",)
    predicted = False
    reading = "kvbench.experiments.fragmentation.reading"
    options = FragmentationOptions

    def make_workload(self, config: FragmentationOptions, facts: RunnerFacts) -> Workload:
        """The requests, all there at the start."""
        from kvbench.experiments.fragmentation.workload import make_fragmentation  # late: help knows every experiment and makes no workload

        return make_fragmentation(config, facts.vocab)


EXPERIMENT = FragmentationExperiment()
