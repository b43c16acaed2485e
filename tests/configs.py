"""Configurations of runs whose experiment a test knows, and the type checker does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvbench.experiments.composed import load_config


def loaded(file: Path | None, given: dict[str, Any]) -> Any:
    """As :func:`kvbench.experiments.composed.load_config`."""
    return load_config(file, given)
