"""Where a command's words go: stdout, a file, stderr. Whatever is shown is cleaned here, as servers and files of others put words in it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kvbench.cli import colour
from kvbench.drawing.clean import clean, one_line
from kvbench.errors import RunFailed, UsageError


def write(
    text: str, file: Path | None = None, read: Iterable[Path] = (), instead: str = "-o FILE writes a file", report: bool = False
) -> None:
    """Write the result to a file, instead of what it held, or to stdout.

    A reader of stdout that stops (``| head``) is no error; a character that cannot be shown there becomes ``?``.

    Args:
        read: what the result was made from; no such file is overwritten.
        instead: what to do where stdout cannot be written.
        report: it is a report for a terminal, which has colours there (:mod:`kvbench.cli.colour`).

    Raises:
        UsageError: the file cannot be written, or is raw data.
        RunFailed: stdout cannot be written.
    """
    if file is not None:
        _refuse_raw(file, "--output", read)
        there = file.exists()
        with _writing(f"--output {file}", "file"):
            try:
                file.write_text(clean(text), encoding="utf-8")
            except OSError:
                if not there:
                    file.unlink(missing_ok=True)
                raise
        return
    try:
        if sys.stdout is None:  # it was closed before kvbench began
            raise RunFailed(f"stdout: is closed; {instead}")
        encoding = sys.stdout.encoding or "utf-8"
        shown = clean(text)
        if report and colour.shown_on(sys.stdout):
            shown = colour.of_report(shown)
        sys.stdout.write(shown.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()
    except OSError as error:
        drop_stdout()
        raise RunFailed(f"stdout: cannot be written ({error.strerror}); {instead}") from None


def require_writable(file: Path | None) -> None:
    """Refuse a file that could not be written later, before anything is measured; does not make it."""
    if file is not None:
        _refuse_raw(file, "--output")
    with _writing(f"--output {file}", "file"):
        if file is None or (file.exists() and file.is_file() and os.access(file, os.W_OK)):
            return
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not file.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def append(text: str, path: Path) -> None:
    """Write the result behind what a file holds.

    Raises:
        UsageError: it cannot be written, or is raw data.
    """
    _refuse_raw(path, "$GITHUB_STEP_SUMMARY")
    with _writing(str(path), "file"), path.open("a", encoding="utf-8") as stream:
        stream.write(clean(text))


def save_all(texts: Mapping[str, str], folder: Path) -> None:
    """Write texts by file name into the folder of ``--plots``, which is made if there is none; ``UsageError`` where that cannot be."""
    with _writing(f"--plots {folder}", "folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(clean(text), encoding="utf-8")


def say(text: str) -> None:
    """A line on stderr. Where that cannot be written nothing is said, and the exit code still tells."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(colour.of_line(f"kvbench: {one_line(text)}", sys.stderr), file=sys.stderr, flush=True)


def drop_stdout() -> None:
    """Lose what stdout still holds: else the interpreter writes a traceback when it flushes it at exit (Python's own advice)."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def hold_standard_files() -> None:
    """Open what was closed of stdin, stdout and stderr, so that no file of a run gets such a number, and with it words of others."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _refuse_raw(file: Path, option: str, read: Iterable[Path] = ()) -> None:
    """Refuse to write over the raw data of a run, or over what was read."""
    from kvbench.runs.run_folder import is_raw  # late: help reads this module

    held = (item for path in read for item in (path, *filter(is_raw, path.glob("*"))) if item.is_file())  # links have many names
    if is_raw(file.resolve()) or (file.exists() and any(item.samefile(file) for item in held)):
        raise UsageError(f"{option} {file}: holds what the result is made from, which is never overwritten; name another file")


@contextmanager
def _writing(where: str, kind: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{where}: cannot be written ({error.strerror}); name a {kind} you may write to") from None
