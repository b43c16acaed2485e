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
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pydantic import ValidationError
from pydantic_core import from_json

from kvbench.drawing.clean import clean_json
from kvbench.errors import RunFailed, UsageError
from kvbench.runs.events import EngineEvent
from kvbench.runs.integrity import CHECKED, ENDED, faults
from kvbench.runs.lines import PASS, REQUEST
from kvbench.runs.manifest_types import Manifest
from kvbench.runs.records import PassRecord, RequestRecord
from kvbench.runs.typed_json import CHANGED, Part, is_cut, parser, refusal

FORMAT = "kvbench.run/1"
_LINES = ("requests", "passes", "events")
_RAW = frozenset({"manifest.json", "sweep.json", *(f"{name}.jsonl" for name in _LINES)})
_SPARE = 4096
"""Spaces at the end of the manifest of a run that goes on: room to say there how it ended, on a disk that has no other."""

LISTED = 5
"""Run folders that an error names of a folder that holds some: the last by name, which are the newest."""

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
        self._files: dict[str, IO[str]] = {}
        with new_folder(path, "exists already, and a run is never overwritten; name a new folder"):
            try:
                for name in _LINES:
                    self._files[name] = (path / f"{name}.jsonl").open("x", encoding="utf-8")
                replace_json(path / "manifest.json", self.manifest, _SPARE)
            except OSError:
                self.close()
                raise

    def append_request(self, record: RequestRecord) -> None:
        """Append one request and flush it to the operating system."""
        self._append("requests", [record.to_json()])

    def append_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Append engine events and flush them."""
        self._append("events", events)

    def append_pass(self, record: PassRecord) -> None:
        """Append one pass, then sync every file to the disk: a finished pass survives a power cut."""
        self._append("passes", [record.to_json()])
        with writing(self.path):
            for file in self._files.values():
                os.fsync(file.fileno())

    def update(self, **fields: Any) -> None:
        """Set fields of the manifest and rewrite it."""
        self.manifest.update(fields)
        _write_manifest(self.path, self.manifest)

    def describe_arm(self, name: str, details: Mapping[str, Any]) -> None:
        """Add to what the manifest says of an arm, and rewrite it."""
        self.update(arms=[arm | (details if arm["name"] == name else {}) for arm in self.manifest["arms"]])

    def finish(self, status: str, reasons: Iterable[str] = ()) -> None:
        """Set the final status (``complete``, ``interrupted`` or ``invalid``) with its reasons."""
        self.update(status=status, reasons=list(reasons))

    def close(self) -> None:
        """Close the files; writes nothing more."""
        for file in self._files.values():
            with suppress(OSError):  # of what could not be written it was said when it was appended
                file.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _append(self, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
        file = self._files[name]
        with writing(self.path):
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            file.flush()
            if os.fstat(file.fileno()).st_nlink == 0:
                raise RunFailed(f"{self.path}: was removed while the run went on; nothing is left for `kvbench report` to show")


@contextmanager
def writing(path: Path, then: str = "") -> Iterator[None]:
    """Within it ``OSError`` is ``RunFailed``: in one line, the folder, why it cannot be written, and what ``then``."""
    try:
        yield
    except OSError as error:
        raise RunFailed(f"{path}: cannot be written ({error.strerror}){then}") from None


@contextmanager
def new_folder(path: Path, exists: str) -> Iterator[None]:
    """Make a folder of ``--out``; within it its first files are written. Where one cannot be, nothing is left.

    Raises:
        UsageError: it is there, in the words of ``exists``, or it cannot be written.
    """
    try:
        path.mkdir(parents=True)
        try:
            yield
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
    except FileExistsError:
        raise UsageError(f"--out {path}: {exists}") from None
    except OSError as error:
        raise UsageError(f"--out {path}: cannot be written ({error.strerror}); name a folder you may write to") from None


def is_raw(file: Path) -> bool:
    """Whether a file is, or would be, one of those that a run or a sweep wrote."""
    beside = any((file.parent / name).exists() for name in ("manifest.json", "sweep.json"))
    return beside and (file.name in _RAW or (file.suffix == ".log" and file.exists()))


def _write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest; where there is no room for a new file, how a run ended goes over the old text, into its spare room."""
    file, goes_on = path / "manifest.json", manifest["status"] == "running"
    with writing(path):
        try:
            replace_json(file, manifest, _SPARE if goes_on else 0)
        except OSError:
            text = _as_text(manifest).encode()
            if goes_on or len(text) > file.stat().st_size:
                raise
            with file.open("r+b") as held:
                held.write(text.ljust(file.stat().st_size - 1) + b"\n")


def replace_json(path: Path, content: Mapping[str, Any], spare: int = 0) -> None:
    """Replace a file in one step, so that a reader never sees half of one; where that fails nothing is left of the new one.

    ``spare``: spaces at its end.
    """
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)  # a link there would be followed
    try:
        with new.open("x", encoding="utf-8") as file:
            file.write(_as_text(content) + " " * spare + "\n")
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def _as_text(content: Mapping[str, Any]) -> str:
    return clean_json(json.dumps(content, indent=2, ensure_ascii=False))


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run folder.

    Raises:
        UsageError: no folder, no manifest, another format, or a part of it that is not what it must be.
    """
    file = path / "manifest.json"
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path}: not a run folder (no manifest.json); {_runs_below(path)}") from None
    except NotADirectoryError:
        own = path.parent / "manifest.json"
        hint = f"name its run folder: {path.parent}" if own.exists() else f"if it is a log, `kvbench report --csv {path}` shows it"
        raise UsageError(f"{path}: a file, and not a run folder; {hint}") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error})") from None
    try:
        found = from_json(text)
    except ValueError as error:
        raise UsageError(f"{file}: cannot be read ({error})") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        found = found.get("format") if isinstance(found, dict) else None
        raise UsageError(f"{file}: format is {found!r}, this kvbench reads {FORMAT!r}")
    try:
        manifest = parser(Manifest)(text)
    except ValidationError as error:
        raise refusal(file, error) from None
    return {name: Part(f"{file}: {name}", found[name]) if isinstance(found[name], dict) else found[name] for name in manifest}


def _runs_below(path: Path) -> str:
    """The run folders in a folder that is none itself, up to :data:`LISTED`, or how to make one."""
    found = sorted(manifest.parent for manifest in path.glob("*/manifest.json"))
    if not found:
        return "`kvbench run --out DIR` makes one"
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    return f"it holds run folders, name one or more of them: {', '.join(map(str, found[-LISTED:]))}{more}"


def set_status(path: Path, status: str, reasons: Iterable[str] = ()) -> None:
    """Set the status of a run whose folder was closed: what came after it may speak against it."""
    _write_manifest(path, read_manifest(path) | {"status": status, "reasons": list(reasons)})


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
        UsageError: no folder, no manifest, another format, a line that is no record and was not cut, or files that do not belong together
            (:mod:`kvbench.runs.integrity`).
    """
    manifest = read_manifest(path)
    skipped: list[str] = []
    kept = None if fields is None else {*fields, *CHECKED, "error"}
    requests = _read_lines(path / "requests.jsonl", skipped, parser(REQUEST, kept))
    passes = _read_lines(path / "passes.jsonl", skipped, parser(PASS))
    cut = [f"{what}, in a run that is marked {manifest['status']}" for what in skipped if manifest["status"] in ENDED]
    if fault := next(chain(cut, faults(manifest, requests, passes)), None):
        raise UsageError(f"{path}/{fault}; {CHANGED}")
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
    return _read_lines(file, [], parser(EngineEvent)) if file.is_file() else []


def _read_lines(path: Path, skipped: list[str], parse: Callable[[bytes], Any]) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; a last line without its end is skipped and named.

    pydantic's parser checks them in less time than the standard library's takes to read them.
    """
    objects: list[dict[str, Any]] = []
    broken: tuple[int, ValidationError] | None = None
    try:
        with path.open("rb") as file, _without_collection():
            for number, line in enumerate(file, start=1):
                if broken is not None:
                    break
                try:
                    objects.append(parse(line))
                except ValidationError as error:
                    broken = number, error
            else:
                if broken is not None and is_cut(broken[1]):
                    skipped.append(f"{path.name}: line {broken[0]} is truncated and was skipped")
                    broken = None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if broken is not None:
        raise refusal(path, broken[1], broken[0])
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
