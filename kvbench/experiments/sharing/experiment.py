"""Experiment ``sharing``, as it is run."""

from __future__ import annotations

from kvbench.experiments.experiment import Experiment, RunnerFacts
from kvbench.experiments.sharing.options import SharingOptions
from kvbench.experiments.workload import Workload


class SharingExperiment(Experiment[SharingOptions]):
    """Several answers to one prompt."""

    name = "sharing"
    sentence = "Several answers to one prompt, sampled or by beam search: the KV blocks that sharing saves."
    example = "kvbench run sharing --n 4 --beams 4"
    order = 3
    runners = ("engine",)
    predicted = False
    reading = "kvbench.experiments.sharing.reading"
    options = SharingOptions

    def make_workload(self, config: SharingOptions, facts: RunnerFacts) -> Workload:
        """The prompts of both passes."""
        from kvbench.experiments.sharing.workload import make_sharing  # late: help knows every experiment and makes no workload

        return make_sharing(config, facts.vocab)


EXPERIMENT = SharingExperiment()
