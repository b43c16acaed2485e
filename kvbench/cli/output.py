"""Where a command's result goes: stdout, or a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from kvbench.errors import UsageError


def write(text: str) -> None:
    """Write the result to stdout. A reader that stops (``| head``) is no error; a character that cannot be shown becomes ``?``."""
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


def save(text: str, path: Path) -> None:
    """Write the result to a file, in place of what it held.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {path}: cannot be written ({error.strerror}); name a file you may write to") from None


def append(text: str, path: Path) -> None:
    """Write the result behind what a file holds.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); name a file you may write to") from None


def save_all(texts: Mapping[str, str], folder: Path) -> None:
    """Write texts by file name into a folder, which is made if there is none.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--plots {folder}: cannot be written ({error.strerror}); name a folder you may write to") from None
