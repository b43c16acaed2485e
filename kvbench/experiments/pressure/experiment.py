"""Experiment ``pressure``, as it is run."""

from __future__ import annotations

from kvbench.experiments.experiment import Experiment
from kvbench.experiments.pressure.options import PressureOptions


class PressureExperiment(Experiment[PressureOptions]):
    """Requests that outgrow the pool."""

    name, order, runners = "pressure", 2, ("engine", "vllm")
    sentence = "Requests whose answers outgrow the KV pool: recompute, swap and reservation compared."
    example = "kvbench run pressure --requests 16 --output-tokens 128"
    options = PressureOptions
    workload, reading = "kvbench.experiments.pressure.workload", "kvbench.experiments.pressure.reading"


EXPERIMENT = PressureExperiment()
