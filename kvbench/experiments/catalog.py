"""Which experiments and runners there are, by the names the user gives them. Each is imported only when it is chosen."""

from __future__ import annotations

from pathlib import Path

from kvbench.config import DEFAULT_DOCS, RunConfig, given_or
from kvbench.experiments.workload import Workload
from kvbench.runners.base import Backend, DeviceCapacity


def make_backend(config: RunConfig) -> Backend:
    """The means to start the arms of a run: loads the model, or finds out how servers are started.

    Raises:
        KvbenchError: the model cannot be used, or the machine cannot do it.
    """
    from kvbench.runners.engine.backend import EngineBackend  # torch comes in here

    return EngineBackend(config)


def make_workload(config: RunConfig, vocab: int, tokenizer: Path, capacity: DeviceCapacity) -> Workload:
    """The workload of a run.

    Args:
        vocab: token ids are drawn from ``0 .. vocab - 1``.
        tokenizer: the model's ``tokenizer.json``, read only for text.
        capacity: of the device pool.

    Raises:
        UsageError: the files it names cannot be used.
    """
    from kvbench.experiments.cyclic import make_cyclic

    return make_cyclic(config, given_or(config.docs, DEFAULT_DOCS), vocab, tokenizer)
