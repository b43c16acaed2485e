"""Which points a sweep has: the values of one option, each with a configuration that was checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from kvbench.config.run import RunConfig
from kvbench.config.secrets import mask_command
from kvbench.config.settings import flag
from kvbench.errors import UsageError
from kvbench.experiments.composed import all_fields, load_config
from kvbench.runs.sweep_folder import Point, Sweep, shown

_LONGEST = 60
"""Letters of a value in the name of a folder."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A sweep that may run: as it is kept, and the configuration of each of its points."""

    sweep: Sweep
    configs: tuple[RunConfig, ...]


def plan_sweep(file: Path | None, given: Mapping[str, Any], words: Sequence[str], command: Sequence[str]) -> Planned:
    """The sweep of ``KEY=V1,V2,...`` over what else was given.

    Values are separated by commas; by semicolons where the option itself takes commas, or where a semicolon is there. Each is read as
    the option itself is.

    Raises ``UsageError``: more than one sweep, no such option, one that is given too, a value twice, fewer than two; or as
    :func:`kvbench.experiments.composed.load_config` for any value.
    """
    if len(words) > 1:
        raise UsageError(
            f"--sweep {words[0]} and --sweep {words[1]}: one option is swept at a time; run two sweeps, each with its own --out"
        )
    name, _, text = words[0].partition("=")
    key = name.strip().removeprefix("--").replace("-", "_")
    if key not in all_fields():
        raise UsageError(f"--sweep {words[0]}: there is no option {name.strip() or 'of that name'}; `kvbench run --help` lists them")
    if key in given:
        raise UsageError(f"{flag(key)} and --sweep {words[0]}: give the values in one of them")
    values = _split(words[0], key, text)
    configs = tuple(load_config(file, {**given, key: [value] if _takes_list(key) else value}) for value in values)
    resolved = [config.resolved() for config in configs]
    parsed = [config.model_dump(mode="json")[key] for config in configs]
    for place, value in enumerate(parsed):
        if value in parsed[:place]:
            raise UsageError(f"--sweep {words[0]}: {shown(value)} is given twice; each value may be given once")
    points = tuple(
        Point(kept.get(key), folder, kept)
        for kept, folder in zip(resolved, _folders(key, [kept.get(key) for kept in resolved]), strict=True)
    )
    return Planned(Sweep(key, points, tuple(mask_command(command))), configs)


def _split(word: str, key: str, text: str) -> list[str]:
    separator = ";" if ";" in text or _takes_list(key) else ","
    values = [value.strip() for value in text.split(separator)]
    if "" in values:
        raise UsageError(f"--sweep {word}: a value is missing, as in {flag(key).removeprefix('--')}=V1{separator}V2")
    if len(values) > 1:
        return values
    if "," in text:
        raise UsageError(f"--sweep {word}: {flag(key)} itself takes commas; separate its values by semicolons, in quotes: '{key}=A,B;C'")
    raise UsageError(f"--sweep {word}: a sweep has two values or more; one is {flag(key)} {text}")


def _takes_list(key: str) -> bool:
    return get_origin(all_fields()[key].annotation) is tuple


def _folders(key: str, values: Sequence[Any]) -> list[str]:
    """A folder's name for each value: ``doc-tokens-5011``; values that look alike as names are numbered."""
    folders: list[str] = []
    for value in values:
        text = shown(value).rstrip("/").rpartition("/")[2]
        name = f"{key.replace('_', '-')}-{re.sub(r'[^A-Za-z0-9._+-]+', '_', text)[:_LONGEST]}"
        alike = sum(folder == name or folder.startswith(f"{name}~") for folder in folders)
        folders.append(f"{name}~{alike + 1}" if alike else name)
    return folders
