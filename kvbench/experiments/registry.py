"""Which experiments there are: each room below this one that has a module ``experiment``, and what else was registered."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

import kvbench.experiments
from kvbench.experiments.experiment import Experiment

_registered: dict[str, Experiment[Any]] = {}


@cache
def _rooms() -> dict[str, Experiment[Any]]:
    """The experiments of this package, by name. Their rooms are found, not listed."""
    found: dict[str, Experiment[Any]] = {}
    for room in pkgutil.iter_modules(kvbench.experiments.__path__, "kvbench.experiments."):
        if room.ispkg and importlib.util.find_spec(f"{room.name}.experiment") is not None:
            experiment: Experiment[Any] = importlib.import_module(f"{room.name}.experiment").EXPERIMENT
            found[experiment.name] = experiment
    return found


def experiments() -> Mapping[str, Experiment[Any]]:
    """Every experiment by its name, in their order."""
    return {item.name: item for item in sorted({**_rooms(), **_registered}.values(), key=lambda item: item.order)}


def register(experiment: Experiment[Any]) -> None:
    """Add an experiment that is no room of this package."""
    _registered[experiment.name] = experiment


def unregister(name: str) -> None:
    """Take one away that was added."""
    _registered.pop(name, None)
