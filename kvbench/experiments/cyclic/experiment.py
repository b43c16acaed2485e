"""Experiment ``cyclic``, as it is run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvbench.config.run import RunConfig
from kvbench.experiments.cyclic.options import CyclicOptions
from kvbench.experiments.experiment import Experiment


class CyclicExperiment(Experiment[CyclicOptions]):
    """Documents that are read again."""

    name, order, runners = "cyclic", 0, ("engine", "vllm", "simulator")
    sentence = "Documents read in order, again, and in reverse: what a tier saves when they exceed the device pool."
    example = "kvbench run cyclic --docs 10 --kv-tokens 21520 --repeats 3"
    predicted = True
    options = CyclicOptions
    workload, reading = "kvbench.experiments.cyclic.workload", "kvbench.experiments.tiers.reading"

    def controls(self, config: CyclicOptions, manifest: Mapping[str, Any]) -> Mapping[str, RunConfig]:
        """Two runs in which no tier can help, if they were asked for."""
        from kvbench.experiments.cyclic.controls import control_configs  # late: help knows every experiment

        return control_configs(config, manifest) if config.controls else {}


EXPERIMENT = CyclicExperiment()
