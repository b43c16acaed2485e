"""Experiment ``cyclic``, as it is run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kvbench.config.run import RunConfig
from kvbench.config.settings import given_or
from kvbench.experiments.cyclic.options import DEFAULT_DOCS, CyclicOptions
from kvbench.experiments.experiment import Experiment, RunnerFacts
from kvbench.experiments.workload import Workload

AUTO_RATIO = 2.3
"""Working set ÷ device pool where documents are made to fit a server: that of the published measurement."""


class CyclicExperiment(Experiment[CyclicOptions]):
    """Documents that are read again."""

    name = "cyclic"
    sentence = "Documents read in order, again, and in reverse: what a tier saves when they exceed the device pool."
    example = "kvbench run cyclic --docs 10 --kv-tokens 21520 --repeats 3"
    order = 0
    runners = ("engine", "vllm", "simulator")
    predicted = True
    reading = "kvbench.experiments.cyclic.reading"
    options = CyclicOptions

    def make_workload(self, config: CyclicOptions, facts: RunnerFacts) -> Workload:
        """The documents, as many as are asked for; on a server as many as exceed its pool."""
        from kvbench.experiments.cyclic.workload import make_cyclic  # late: help knows every experiment and makes no workload

        docs = given_or(config.docs, DEFAULT_DOCS)
        if config.docs == "auto" and config.runner == "vllm":
            docs = math.ceil(AUTO_RATIO * facts.capacity.tokens / config.doc_tokens)
        return make_cyclic(config, docs, facts.vocab, facts.tokenizer)

    def controls(self, config: CyclicOptions, manifest: Mapping[str, Any]) -> Mapping[str, RunConfig]:
        """Two runs in which no tier can help, if they were asked for."""
        from kvbench.experiments.cyclic.controls import control_configs  # late: as above

        return control_configs(config, manifest) if config.controls else {}


EXPERIMENT = CyclicExperiment()
