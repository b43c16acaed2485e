"""Experiment ``pressure``, as it is run."""

from __future__ import annotations

from kvbench.experiments.experiment import Experiment, RunnerFacts
from kvbench.experiments.pressure.options import PressureOptions
from kvbench.experiments.workload import Workload


class PressureExperiment(Experiment[PressureOptions]):
    """Requests that outgrow the pool."""

    name = "pressure"
    sentence = "Requests whose answers outgrow the KV pool: recompute, swap and reservation compared."
    example = "kvbench run pressure --requests 16 --output-tokens 128"
    order = 2
    runners = ("engine", "vllm")
    predicted = False
    reading = "kvbench.experiments.pressure.reading"
    options = PressureOptions

    def make_workload(self, config: PressureOptions, facts: RunnerFacts) -> Workload:
        """The requests, all there at the start."""
        from kvbench.experiments.pressure.workload import make_pressure  # late: help knows every experiment and makes no workload

        return make_pressure(config, facts.vocab, facts.capacity)


EXPERIMENT = PressureExperiment()
