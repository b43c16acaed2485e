"""Where a run comes from, as its manifest tells: the machine, the software, and the commands that made it and repeat it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import RunView


@dataclass(frozen=True, slots=True)
class Origin:
    """``facts``: names and values. ``recorded``: the command line that made the run; ``repeat``: the one that runs it again.

    ``servers``: the command line of each server it started, by arm and name; ``config``: the whole configuration, as JSON. Secrets are
    masked, as they are in the manifest. Empty where there is none.
    """

    facts: tuple[tuple[str, str], ...]
    recorded: str
    repeat: str
    servers: tuple[tuple[str, str], ...]
    config: str


def origin_of(view: RunView) -> Origin:
    """The origin of a run; a log has none."""
    info = view.info
    if info.command is None:
        return Origin((), "", "", (), "")
    return Origin(
        facts=tuple(_facts(info)),
        recorded=shlex.join(info.command),
        repeat=shlex.join(["kvbench", "run", "--config", str(view.path / "manifest.json")]),
        servers=tuple(_servers(info.arm_details)),
        config=json.dumps(info.config, ensure_ascii=False),
    )


def _facts(info: RunInfo) -> Iterator[tuple[str, str]]:
    """What is known, in the order of the manifest; nested names are told as pairs."""
    yield "kvbench", info.kvbench
    yield "created", info.created
    for part, values in (("model", info.model), ("seeds", info.seeds), ("environment", info.environment)):
        for name, value in values.items():
            if (text := _text(value)) is not None:
                yield _label(part, name), text


def _label(part: str, name: str) -> str:
    if part == "environment":
        return {"cpu": "CPU", "os": "OS", "gpu": "GPU", "memory_gib": "memory (GiB)", "omp_wait": "OpenMP wait"}.get(name, _words(name))
    return "model" if (part, name) == ("model", "name") else f"{part.removesuffix('s')}, {_words(name)}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: Any) -> str | None:
    """A value in words, ``None`` where nothing is known."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text}" for name, item in value.items() if (text := _text(item)) is not None) or None
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return None if value is None else str(value)


def _servers(arms: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for arm, details in arms.items():
        for name, server in (details.get("command") or {}).items():
            if isinstance(server, Mapping) and "command" in server:
                given = {**(server.get("inherited") or {}), **(server.get("environment") or {})}
                variables = [f"{variable}={shlex.quote(value)}" for variable, value in sorted(given.items())]
                yield f"{arm}, {name}", " ".join([*variables, shlex.join(server["command"])])
