"""The folder of a sweep: a run folder for each value of one option, and ``sweep.json``, which says what they have in common.

Format ``kvbench.sweep/1`` (first version) of ``sweep.json``, written before the first point runs:

``key``      the option that is swept, by field name
``common``   the resolved configuration as far as it is the same at every point
``points``   in their order: ``value``; ``folder``, below this one; ``own``, the rest of the configuration; ``error``, why the last attempt
             could not be done, null where there was none
``kvbench``, ``command``: the version and the command line that made the folder
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvbench.errors import UsageError
from kvbench.runs.run_folder import new_folder, replace_json, writing
from kvbench.runs.version import __version__

FORMAT = "kvbench.sweep/1"
FILE = "sweep.json"
FINISHED = frozenset({"complete", "invalid"})
"""Status of a run that came to its end; any other one is run again."""

ABSENT = "not given"
"""What is said of an option that does not apply in one of two configurations."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of the option, as JSON keeps it, the resolved configuration of its run, and the name of its run folder."""

    value: Any
    folder: str
    config: Mapping[str, Any]
    error: str | None = None

    @property
    def label(self) -> str:
        """The value as it is shown."""
        return shown(self.value)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as it is kept: the option by field name, its points in their order, the command line that made it."""

    key: str
    points: tuple[Point, ...]
    command: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """What ``sweep.json`` holds."""
        first = self.points[0].config
        common = {
            name: value
            for name, value in first.items()
            if all(name in point.config and point.config[name] == value for point in self.points)
        }
        points = [
            {
                "value": point.value,
                "folder": point.folder,
                "own": {name: value for name, value in point.config.items() if name not in common},
                "error": point.error,
            }
            for point in self.points
        ]
        about = {"format": FORMAT, "kvbench": __version__, "command": list(self.command), "key": self.key}
        return {**about, "common": common, "points": points}


class SweepFolder:
    """Writes one sweep. Made by :meth:`opened`, which holds it for one process at a time."""

    def __init__(self, path: Path, sweep: Sweep) -> None:
        self.path = path
        self.sweep = sweep

    @classmethod
    @contextmanager
    def opened(cls, path: Path, sweep: Sweep) -> Iterator[SweepFolder]:
        """The folder of this sweep: a new one, or the one that an earlier call left. One in which there is no run is removed at the end.

        Raises:
            UsageError: it cannot be written, holds something else or another sweep, or another process is at it.
        """
        _make(path, sweep)
        with _held(path):
            found = read_sweep(path)
            _check_same(path, found, sweep)
            folder = cls(path, replace(found, points=tuple(replace(point, error=None) for point in found.points)))
            folder._keep()
            try:
                yield folder
            finally:
                with suppress(OSError):  # somebody removed it
                    if not any(item.is_dir() for item in path.iterdir()):
                        (path / FILE).unlink()
                        path.rmdir()

    def run_folder(self, point: Point) -> Path:
        """Where the point's run is, or will be."""
        return self.path / point.folder

    def is_finished(self, point: Point) -> bool:
        """Whether the point's run came to its end."""
        return _status(self.run_folder(point)) in FINISHED

    def set_aside(self, point: Point) -> Path | None:
        """Give what an earlier attempt left another name, so that the point can run again; returns it, ``None`` where nothing was left."""
        left = self.run_folder(point)
        if not left.exists():
            return None
        number = 1
        while (kept := left.with_name(f"{left.name}.interrupted-{number}")).exists():
            number += 1
        with self.writing():
            return left.rename(kept)

    def failed(self, point: Point, reason: str) -> None:
        """Keep why a point could not be done."""
        points = tuple(replace(item, error=reason) if item.folder == point.folder else item for item in self.sweep.points)
        self.sweep = replace(self.sweep, points=points)
        self._keep()

    def writing(self) -> AbstractContextManager[None]:
        """Within it a file that cannot be written ends the sweep in one line, which says how it is shown."""
        return writing(self.path, f"; what was measured is there (kvbench report {self.path})")

    def _keep(self) -> None:
        with self.writing():
            replace_json(self.path / FILE, self.sweep.to_json())


def is_sweep(path: Path) -> bool:
    """Whether the folder is a sweep's."""
    return (path / FILE).exists()


def read_sweep(path: Path) -> Sweep:
    """Read the folder of a sweep.

    Raises:
        UsageError: there is none, it cannot be read, or it has another format.
    """
    file = path / FILE
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise UsageError(f"{file}: format is {found['format']!r}, this kvbench reads {FORMAT!r}")
        points = tuple(
            Point(item["value"], _name(item["folder"]), {**found["common"], **item["own"]}, item["error"]) for item in found["points"]
        )
        return Sweep(str(found["key"]), points, tuple(found["command"]))
    except (OSError, ValueError, RecursionError, LookupError, TypeError) as error:
        raise UsageError(f"{file}: cannot be read ({type(error).__name__}: {error}); it is not as `kvbench run --sweep` wrote it") from None


def shown(value: Any) -> str:
    """A value of a configuration in words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, (list, tuple)):
        return ",".join(shown(item) for item in value)
    return ABSENT if value is None else str(value)


def _name(folder: Any) -> str:
    """The name of a point's folder; ``ValueError`` for anything that is no name right below the sweep's."""
    if not isinstance(folder, str) or folder in ("", ".", "..") or any(sign in folder for sign in "/\\\0"):
        raise ValueError(f"{folder!r} is no name of a folder")
    return folder


def _status(folder: Path) -> str | None:
    """The status a run folder has; ``None`` where there is none that can be read."""
    try:
        return str(json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["status"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _make(path: Path, sweep: Sweep) -> None:
    """Make the folder, if there is none."""
    if not is_sweep(path):
        with new_folder(path, "exists already, and is not the folder of a sweep; name a new folder"):
            replace_json(path / FILE, sweep.to_json())


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """For this process only, until it ends, however it ends; where the system has no such locks, without one."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    held = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"--out {path}: another kvbench runs this sweep; wait for it, or name a new folder") from None
        yield
    finally:
        os.close(held)


def _check_same(path: Path, found: Sweep, asked: Sweep) -> None:
    """Refuse a folder that holds another sweep, naming what differs."""
    if differing := list(_differences(found, asked)):
        raise UsageError(f"--out {path}: holds another sweep ({'; '.join(differing)}); name a new folder, or give the same options")


def _differences(found: Sweep, asked: Sweep) -> Iterator[str]:
    if found.key != asked.key:
        yield f"{found.key} there, {asked.key} here"
        return
    values = [[point.value for point in sweep.points] for sweep in (found, asked)]
    if values[0] != values[1]:
        yield f"{found.key}: {' '.join(map(shown, values[0]))} there, {' '.join(map(shown, values[1]))} here"
        return
    told: set[str] = set()
    for before, now in zip(found.points, asked.points, strict=True):
        if before.folder != now.folder:
            yield f"folder {before.folder!r} there, {now.folder!r} here"
    for before, now in zip(found.points, asked.points, strict=True):
        for name, old, new in differing_options([before.config, now.config]):
            if name not in told:
                told.add(name)
                yield f"{name}: {shown(old)} there, {shown(new)} here"


def differing_options(configs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Each option that is not the same in all of these configurations: its name, then its value in each (``None``: not there)."""
    names = dict.fromkeys(name for config in configs for name in config)
    for name in names:
        values = [config.get(name) for config in configs]
        if any(value != values[0] for value in values):
            yield (name, *values)
