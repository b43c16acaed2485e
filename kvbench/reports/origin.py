"""Where a run comes from, as its manifest tells: the machine, the software, and the commands that made it and repeat it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvbench.runs.run_folder import Run


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


def origin_of(run: Run) -> Origin:
    """The origin of a run; a log has none."""
    manifest, command = run.manifest, run.manifest.get("command")
    if command is None:
        return Origin((), "", "", (), "")
    return Origin(
        facts=tuple(_facts(manifest)),
        recorded=shlex.join(command),
        repeat=shlex.join(["kvbench", "run", "--config", str(run.path / "manifest.json")]),
        servers=tuple(_servers(manifest)),
        config=json.dumps(manifest.get("config"), ensure_ascii=False),
    )


def _facts(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is known, in the order of the manifest; nested names are told as pairs."""
    yield "kvbench", str(manifest.get("kvbench"))
    yield "created", str(manifest.get("created"))
    for part in ("model", "seeds", "environment"):
        for name, value in (manifest.get(part) or {}).items():
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


def _servers(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for arm in manifest.get("arms") or ():
        for name, server in (arm.get("command") or {}).items():
            if isinstance(server, Mapping) and "command" in server:
                given = {**(server.get("inherited") or {}), **(server.get("environment") or {})}
                variables = [f"{variable}={shlex.quote(value)}" for variable, value in sorted(given.items())]
                yield f"{arm['name']}, {name}", " ".join([*variables, shlex.join(server["command"])])
