"""Experiment ``sharing``, as it is run."""

from __future__ import annotations

from kvbench.experiments.experiment import Experiment
from kvbench.experiments.sharing.options import SharingOptions


class SharingExperiment(Experiment[SharingOptions]):
    """Several answers to one prompt."""

    name, order, runners = "sharing", 3, ("engine",)
    sentence = "Several answers to one prompt, sampled or by beam search: the KV blocks that sharing saves."
    example = "kvbench run sharing --n 4 --beams 4"
    options = SharingOptions
    workload, reading = "kvbench.experiments.sharing.workload", "kvbench.experiments.sharing.reading"


EXPERIMENT = SharingExperiment()
