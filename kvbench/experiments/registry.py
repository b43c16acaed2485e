"""Which experiments and runners there are, by the names the user gives them. Each is imported only when it is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from kvbench.config.run import RunConfig
from kvbench.config.study import DEFAULT_DOCS, given_or
from kvbench.experiments.workload import Workload
from kvbench.runners.base import Backend, DeviceCapacity
from kvbench.workloads.draws import Draws

AUTO_RATIO = 2.3
"""Working set ÷ device pool where documents are made to fit a server: that of source 001."""


def make_backend(config: RunConfig, folder: Path, note: Callable[[str], None]) -> Backend:
    """The means to start the arms of a run: loads the model, or finds out how servers are started.

    Args:
        folder: where the logs of servers go.
        note: told what is being waited for.

    Raises:
        KvbenchError: the model cannot be used, or the machine cannot do it.
    """
    if config.runner == "simulator":
        from kvbench.runners.simulator.backend import SimulatorBackend

        return SimulatorBackend(config)
    if config.runner == "vllm":
        from kvbench.runners.vllm.attached import AttachedBackend
        from kvbench.runners.vllm.backend import VllmBackend

        if config.url:
            return AttachedBackend(config, note)
        return VllmBackend(config, folder, note)
    from kvbench.runners.engine.backend import EngineBackend  # torch comes in here

    return EngineBackend(config)


def make_workload(config: RunConfig, vocab: int, tokenizer: Path, capacity: DeviceCapacity, salt: str | None = None) -> Workload:
    """The workload of a run.

    Args:
        salt: makes what is drawn other than for any other salt, as servers that were there before may know that. The user's own texts and
            tokens stay as they are.
        vocab: token ids are drawn from ``0 .. vocab - 1``.
        tokenizer: the model's ``tokenizer.json``, read only for text.
        capacity: of the device pool.

    Raises:
        UsageError: the files it names cannot be used.
    """
    if salt is not None:
        config = config.model_copy(update={"seed": Draws(config.seed, "salt", salt).integers(1, 0, 2**63)[0]})
    if config.experiment == "trace":
        from kvbench.experiments.trace.workload import make_trace

        return make_trace(config, vocab, tokenizer)
    if config.experiment == "pressure":
        from kvbench.experiments.pressure.workload import make_pressure

        return make_pressure(config, vocab, capacity)
    if config.experiment == "fragmentation":
        from kvbench.experiments.fragmentation.workload import make_fragmentation

        return make_fragmentation(config, vocab)
    if config.experiment == "sharing":
        from kvbench.experiments.sharing.workload import make_sharing

        return make_sharing(config, vocab)
    from kvbench.experiments.cyclic.workload import make_cyclic

    docs = given_or(config.docs, DEFAULT_DOCS)
    if config.docs == "auto" and config.runner == "vllm":
        docs = math.ceil(AUTO_RATIO * capacity.tokens / config.doc_tokens)
    return make_cyclic(config, docs, vocab, tokenizer)
