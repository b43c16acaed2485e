"""Which experiments there are: each room below this one that has a module ``experiment``, and what else was registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvbench.experiments.experiment import Experiment
from kvbench.registry.registry import Registry

_EXPERIMENTS: Registry[Experiment[Any]] = Registry("kvbench.experiments", "EXPERIMENT", inside="experiment")
register, unregister = _EXPERIMENTS.register, _EXPERIMENTS.unregister


def experiments() -> Mapping[str, Experiment[Any]]:
    """Every experiment by its name, in their order."""
    return {item.name: item for item in sorted(_EXPERIMENTS.all().values(), key=lambda item: item.order)}
