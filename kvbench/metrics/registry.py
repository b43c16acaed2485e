"""Which metrics there are: those of each file of this room, and what else was registered."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pandas as pd

import kvbench.metrics
from kvbench.metrics.metric import Metric, PassRequests

_registered: dict[str, Metric] = {}
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@cache
def _own() -> tuple[Metric, ...]:
    """The metrics of this room's files, which are found, not listed."""
    modules = (importlib.import_module(f"kvbench.metrics.{found.name}") for found in pkgutil.iter_modules(kvbench.metrics.__path__))
    return tuple(metric for module in modules for metric in getattr(module, "METRICS", ()))


def metrics() -> Mapping[str, Metric]:
    """Every metric by its name, in the order of every list."""
    return {metric.name: metric for metric in sorted((*_own(), *_registered.values()), key=lambda metric: metric.order)}


def register(metric: Metric) -> None:
    """Add a metric; it is measured from the request table (``measure``) and kept by its name.

    Raises:
        ValueError: its name is taken or cannot stand in a threshold, or nothing measures it.
    """
    if metric.name in metrics() or not _NAME.fullmatch(metric.name):
        raise ValueError(f"{metric.name!r}: the name of a metric must be new, and of a-z, 0-9 and _")
    if metric.measure is None or not metric.by_name:
        raise ValueError(f"{metric.name}: a metric that is added has measure, and neither row, repeat nor derive")
    _registered[metric.name] = metric


def unregister(name: str) -> None:
    """Take one away that was added."""
    _registered.pop(name, None)


def of_repeat(one: PassRequests) -> dict[str, float | None] | None:
    """The metrics that a baseline keeps by name, of one repeat; ``None``: there are none.

    Of those that a pass has a field for, only the known ones, with six digits that count: the file lies in a repository.
    """
    added = {metric.name: metric.of(one) for metric in metrics().values() if metric.by_name}
    known = {metric.name: value for metric in metrics().values() if metric.by_repeat and (value := metric.of(one)) is not None}
    return added | {name: float(f"{value:.6g}") for name, value in known.items()} or None


def of_pass(requests: pd.DataFrame, lines: Sequence[Mapping[str, Any]]) -> dict[str, float | None] | None:
    """The metrics that are kept by name, of one pass; ``None``: there are none.

    Args:
        requests: the pass's rows, of all repeats; of these the ones that finished it, if any did.
        lines: the pass's lines of ``passes.jsonl``.
    """
    named = [metric for metric in metrics().values() if metric.by_name]
    if not named:
        return None
    finished = {line["repeat"]: line for line in lines}
    groups = requests.groupby("repeat")
    repeats = [PassRequests(rows, finished.get(repeat, {})) for repeat, rows in groups if not finished or repeat in finished]
    found = {metric: [value for one in repeats if (value := metric.of(one)) is not None] for metric in named}
    return {metric.name: metric.over_repeats(values) if values else None for metric, values in found.items()}
