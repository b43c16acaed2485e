"""Where a command's result goes: stdout, or a file. Each raises :class:`UsageError` where a file cannot be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kvbench.errors import UsageError


def write(text: str, file: Path | None = None) -> None:
    """Write the result to a file, in place of what it held, or to stdout.

    A reader of stdout that stops (``| head``) is no error; a character that cannot be shown there becomes ``?``.
    """
    if file is not None:
        with _writing(f"--output {file}", "file"):
            file.write_text(text, encoding="utf-8")
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # Python's own advice: else the interpreter writes a traceback when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def takes_colour() -> bool:
    """Whether stdout is a terminal that shows colours, and nobody asked for none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def append(text: str, path: Path) -> None:
    """Write the result behind what a file holds."""
    with _writing(str(path), "file"), path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def save_all(texts: Mapping[str, str], folder: Path) -> None:
    """Write texts by file name into the folder of ``--plots``, which is made if there is none."""
    with _writing(f"--plots {folder}", "folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def _writing(where: str, kind: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{where}: cannot be written ({error.strerror}); name a {kind} you may write to") from None
