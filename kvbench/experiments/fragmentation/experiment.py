"""Experiment ``fragmentation``, as it is run."""

from __future__ import annotations

from kvbench.experiments.experiment import Experiment
from kvbench.experiments.fragmentation.options import FragmentationOptions


class FragmentationExperiment(Experiment[FragmentationOptions]):
    """The same requests, reserved or paged."""

    name, order, runners = "fragmentation", 4, ("engine",)
    sentence = "The same requests in the same memory, reserved in one piece or paged: the slots that hold no token."
    example = "kvbench run fragmentation --requests 32"
    options = FragmentationOptions
    workload, reading = "kvbench.experiments.fragmentation.workload", "kvbench.experiments.fragmentation.reading"


EXPERIMENT = FragmentationExperiment()
