"""Which runners there are, by name: their options, and the means to start arms on them. Each is imported only when it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.config.engine import EngineOptions
from kvbench.config.run import RunConfig
from kvbench.config.simulator import SimulatorOptions
from kvbench.config.vllm import VllmOptions

if TYPE_CHECKING:
    from kvbench.runners.base import Backend

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunnerKind:
    """One runner. ``make_backend(config, folder, note)``: logs of servers go to ``folder``; ``note`` is told what is being waited for.

    It raises :class:`kvbench.errors.KvbenchError` where the model cannot be used, or the machine cannot do it.
    """

    options: type[RunConfig]
    make_backend: Callable[[Any, Path, Note], Backend]


def _engine(config: EngineOptions, folder: Path, note: Note) -> Backend:
    from kvbench.runners.engine.backend import EngineBackend  # torch comes in here

    return EngineBackend(config)


def _vllm(config: VllmOptions, folder: Path, note: Note) -> Backend:
    from kvbench.runners.http.endpoints.endpoint import find_endpoint
    from kvbench.runners.vllm.attached import AttachedBackend
    from kvbench.runners.vllm.backend import VllmBackend

    find_endpoint(config.endpoint)  # before a server is started
    return AttachedBackend(config, note) if config.url else VllmBackend(config, folder, note)


def _simulator(config: SimulatorOptions, folder: Path, note: Note) -> Backend:
    from kvbench.runners.simulator.backend import SimulatorBackend

    return SimulatorBackend(config)


RUNNERS: dict[str, RunnerKind] = {
    "engine": RunnerKind(EngineOptions, _engine),
    "vllm": RunnerKind(VllmOptions, _vllm),
    "simulator": RunnerKind(SimulatorOptions, _simulator),
}
