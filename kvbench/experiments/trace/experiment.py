"""Experiment ``trace``, as it is run."""

from __future__ import annotations

from kvbench.experiments.experiment import Experiment, RunnerFacts
from kvbench.experiments.trace.options import TraceOptions
from kvbench.experiments.workload import Workload


class TraceExperiment(Experiment[TraceOptions]):
    """Requests as they were once asked."""

    name = "trace"
    sentence = "A trace of real requests replayed at its own times: what a tier is worth to your traffic."
    example = "kvbench run trace --trace requests.jsonl --speedup 2"
    order = 1
    runners = ("engine", "vllm", "simulator")
    predicted = True
    reading = "kvbench.experiments.trace.reading"
    options = TraceOptions

    def make_workload(self, config: TraceOptions, facts: RunnerFacts) -> Workload:
        """The trace's requests."""
        from kvbench.experiments.trace.workload import make_trace  # late: help knows every experiment and makes no workload

        return make_trace(config, facts.vocab, facts.tokenizer)


EXPERIMENT = TraceExperiment()
