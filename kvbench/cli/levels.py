"""`--concurrency 1,4,16`: the same run once for each level, a folder each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvbench.config import RunConfig, load_config
from kvbench.errors import UsageError


def load_levels(file: Path | None, given: Mapping[str, Any]) -> list[RunConfig]:
    """The configurations of all levels, in the order given; one where there is one level.

    Raises:
        UsageError: as :func:`kvbench.config.load_config`, for any of them; or a level is given twice.
    """
    words = [word.strip() for word in str(given.get("concurrency", "")).split(",")]
    if len(words) == 1:
        return [load_config(file, given)]
    configs = [load_config(file, {**given, "concurrency": word}) for word in words]
    if len({config.concurrency for config in configs}) < len(configs):
        raise UsageError(f"--concurrency {given['concurrency']}: each level may be given once")
    return configs


def level_folder(parent: Path, config: RunConfig) -> Path:
    """Where one of several levels is kept."""
    return parent / f"concurrency-{config.concurrency}"
