"""The run folder: where a run is kept. Opened before anything runs, never overwritten, readable whenever a run stopped.

Format ``kvbench.run/1`` (first version):

``manifest.json``   what was run, on what, and how it ended; rewritten whole
``requests.jsonl``  a line a request, appended and flushed as it ends, synced at the end of each pass
``passes.jsonl``    a line for each arm, repeat and pass
``control-NAME/``   a run folder of its own for each control (``--controls``)
``events.jsonl``    what the engine did, with step and time: admit, load, store, evict, preempt, swap out, resume, swap in, catch up (a step
                    of a request that had been preempted, with the tokens it rebuilt), finish, ...

History
    1: first version. Added since, which older readers leave out: a stall's ``first_step_ms``; of a pass ``cached_tokens_device``,
       ``cached_tokens_host``, ``computed_tokens``, ``client_lags_ms``, ``faults``, ``peak_running``, ``quiesce_s`` and
       ``counters_unread``; of a request ``output_digest``, and ``session`` and ``turn`` in the lines of runs that have turns. ``wall_s`` is
       null where no request has a last token, and holds no ``quiesce_s``.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pydantic import TypeAdapter
from pydantic_core import from_json
from typing_extensions import TypedDict

from kvbench.errors import UsageError
from kvbench.runs.records import PassRecord, RequestRecord

FORMAT = "kvbench.run/1"
_OBJECTS = ("config", "capacity", "workload", "model", "environment", "rates")
"""The parts of a manifest that readers take for objects, where they are there."""

CONTROLS = ("no-reuse", "fits")
"""Runs in which no tier can help: nothing is read again; everything fits the device pool."""

LEAST_CONTROL_REPEATS = 3
"""Fewer repeats of a control say nothing (:mod:`kvbench.summary.controls`)."""


class RunFolder:
    """Writes one run. Creating it makes the folder and its files, so that a bad path fails before anything is measured."""

    def __init__(self, path: Path, manifest: Mapping[str, Any]) -> None:
        """Create ``path`` (parents too) and write the manifest with status ``running``.

        Raises:
            UsageError: the folder exists, or cannot be written.
        """
        self.path = path
        self.manifest: dict[str, Any] = {"format": FORMAT, **manifest, "status": "running", "reasons": []}
        try:
            path.mkdir(parents=True)
            self._files: dict[str, IO[str]] = {
                name: (path / f"{name}.jsonl").open("x", encoding="utf-8") for name in ("requests", "passes", "events")
            }
            replace_json(self.path / "manifest.json", self.manifest)
        except FileExistsError:
            raise UsageError(f"--out {path}: exists already, and a run is never overwritten; name a new folder") from None
        except OSError as error:
            raise UsageError(f"--out {path}: cannot be written ({error.strerror}); name a folder you may write to") from None

    def append_request(self, record: RequestRecord) -> None:
        """Append one request and flush it to the operating system."""
        self._append("requests", [record.to_json()])

    def append_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Append engine events and flush them."""
        self._append("events", events)

    def append_pass(self, record: PassRecord) -> None:
        """Append one pass, then sync every file to the disk: a finished pass survives a power cut."""
        self._append("passes", [record.to_json()])
        for file in self._files.values():
            os.fsync(file.fileno())

    def update(self, **fields: Any) -> None:
        """Set fields of the manifest and rewrite it."""
        self.manifest.update(fields)
        replace_json(self.path / "manifest.json", self.manifest)

    def describe_arm(self, name: str, details: Mapping[str, Any]) -> None:
        """Add to what the manifest says of an arm, and rewrite it."""
        self.update(arms=[arm | (details if arm["name"] == name else {}) for arm in self.manifest["arms"]])

    def finish(self, status: str, reasons: Iterable[str] = ()) -> None:
        """Set the final status (``complete``, ``interrupted`` or ``invalid``) with its reasons."""
        self.update(status=status, reasons=list(reasons))

    def close(self) -> None:
        """Close the files; writes nothing more."""
        for file in self._files.values():
            file.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _append(self, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
        file = self._files[name]
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        file.flush()


def replace_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file in one step, so that a reader never sees half of one."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run folder.

    Raises:
        UsageError: no folder, no manifest, another format, or a part of it that is not what it must be.
    """
    manifest_path = path / "manifest.json"
    try:
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: not a run folder (no manifest.json); `kvbench run --out DIR` makes one") from None
    except NotADirectoryError:
        raise UsageError(f"{path}: a file, and not a run folder; if it is a log, `kvbench report --csv {path}` shows it") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{manifest_path}: cannot be read ({error})") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else None
        raise UsageError(f"{manifest_path}: format is {found!r}, this kvbench reads {FORMAT!r}")
    for name in _OBJECTS:
        if not isinstance(manifest.get(name), dict | None):
            raise UsageError(f"{manifest_path}: {name} is no object; the file was changed after the run")
    arms = [] if manifest.get("arms") is None else manifest["arms"]
    if not isinstance(arms, list) or not all(isinstance(arm, dict) and isinstance(arm.get("name"), str) for arm in arms):
        raise UsageError(f"{manifest_path}: arms is no list of objects with a name; the file was changed after the run")
    reasons = [] if manifest.get("reasons") is None else manifest["reasons"]
    if not isinstance(reasons, list) or not all(isinstance(reason, str) for reason in reasons):
        raise UsageError(f"{manifest_path}: reasons is no list of sentences; the file was changed after the run")
    return manifest


def set_status(path: Path, status: str, reasons: Iterable[str] = ()) -> None:
    """Set the status of a run whose folder was closed: what came after it may speak against it."""
    replace_json(path / "manifest.json", read_manifest(path) | {"status": status, "reasons": list(reasons)})


def control_folder(path: Path, control: str) -> Path:
    """Where a control of the run in ``path`` is kept; one of :data:`CONTROLS`."""
    return path / f"control-{control}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run as read back: the manifest, the lines as objects, and what had to be skipped, in words."""

    path: Path
    manifest: dict[str, Any]
    requests: list[dict[str, Any]]
    passes: list[dict[str, Any]]
    skipped: list[str]


def read_run(path: Path, fields: Iterable[str] | None = None) -> Run:
    """Read a run folder, also one whose run was interrupted; a truncated last line is named in ``skipped``.

    Args:
        fields: the fields of the request lines to keep, which is faster and smaller; ``None``: all.

    Raises:
        UsageError: no folder, no manifest, another format, a broken line that is not the last, or no requests beside passes that had some.
    """
    manifest = read_manifest(path)
    skipped: list[str] = []
    requests = _read_lines(path / "requests.jsonl", skipped, from_json if fields is None else _parser(fields))
    passes = _read_lines(path / "passes.jsonl", skipped, from_json)
    if not requests and any(line.get("requests") for line in passes):
        raise UsageError(f"{path / 'requests.jsonl'}: is empty, and passes.jsonl tells of requests; the file was changed after the run")
    return Run(path, manifest, requests, [_without_own_waits(line, manifest) for line in passes], skipped)


def _without_own_waits(line: dict[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A pass whose time is unknown if it holds kvbench's own waits, which runs on servers once did at concurrency 1."""
    config = manifest.get("config") or {}
    holds_waits = "quiesce_s" not in line and config.get("runner") == "vllm" and config.get("concurrency") == 1
    return line | {"wall_s": None} if holds_waits and "wall_s" in line else line


def read_events(path: Path, requests: Container[str]) -> dict[str, list[dict[str, Any]]]:
    """What the engine did for these requests, by their ids, oldest first; empty for runs of runners that do not tell.

    Raises:
        UsageError: a broken line that is not the last.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for event in _all_events(path):
        if (request := str(event.get("request_id"))) in requests:
            found.setdefault(request, []).append(event)
    return found


def read_usage(path: Path) -> list[dict[str, Any]]:
    """How the pool was used, step by step, oldest first; empty for runs that did not ask for it.

    Raises:
        UsageError: a broken line that is not the last.
    """
    return [event for event in _all_events(path) if event.get("event") == "usage"]


def _all_events(path: Path) -> list[dict[str, Any]]:
    file = path / "events.jsonl"
    return _read_lines(file, [], from_json) if file.is_file() else []


def _parser(fields: Iterable[str]) -> Callable[[bytes], Any]:
    """A parser of lines that keeps some fields only."""
    line = TypedDict("line", dict.fromkeys(fields, Any), total=False)  # type: ignore[misc]
    return TypeAdapter(line).validate_json


def _read_lines(path: Path, skipped: list[str], parse: Callable[[bytes], Any]) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; a last line without its end is skipped and named.

    pydantic's parser takes a third of the time of the standard library's.
    """
    objects: list[dict[str, Any]] = []
    broken: int | None = None
    try:
        with path.open("rb") as file, _without_collection():
            for number, line in enumerate(file, start=1):
                if broken is not None:
                    raise UsageError(f"{path}: line {broken} is not JSON, or no record; the file was changed after the run")
                try:
                    value = parse(line)
                except ValueError:
                    value = None
                if isinstance(value, dict):
                    objects.append(value)
                else:
                    broken = number
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if broken is not None:
        skipped.append(f"{path.name}: line {broken} is truncated and was skipped")
    return objects


@contextmanager
def _without_collection() -> Iterator[None]:
    """Without garbage collection, which looks at every object made so far again and again, and finds no garbage among them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # nor does it look at them later; they are freed all the same when nothing refers to them
        if enabled:
            gc.enable()
