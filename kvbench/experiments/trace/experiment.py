"""Experiment ``trace``, as it is run."""

from __future__ import annotations

from kvbench.experiments.experiment import Experiment
from kvbench.experiments.trace.options import TraceOptions


class TraceExperiment(Experiment[TraceOptions]):
    """Requests as they were once asked."""

    name, order, runners = "trace", 1, ("engine", "vllm", "simulator")
    sentence = "A trace of real requests replayed at its own times: what a tier is worth to your traffic."
    example = "kvbench run trace --trace requests.jsonl --speedup 2"
    predicted = True
    options = TraceOptions
    workload, reading = "kvbench.experiments.trace.workload", "kvbench.experiments.trace.reading"


EXPERIMENT = TraceExperiment()
