"""The readers of logs: one in each file of ``formats/``."""

from __future__ import annotations

from kvbench.analysis.logs.reader import LogReader, Object
from kvbench.registry.registry import Registry

READERS: Registry[LogReader] = Registry("kvbench.analysis.logs.formats", "READER")


def reader_of(first: Object) -> LogReader | None:
    """The reader of the tool that wrote this first object of a file; ``None``: it is no tool's that is known."""
    return next((reader for reader in READERS.all().values() if reader.fits(first)), None)


def tools_in_words() -> str:
    """The tools, for help."""
    *others, last = (reader.about for reader in READERS.all().values())
    return f"{', '.join(others)} or {last}"
