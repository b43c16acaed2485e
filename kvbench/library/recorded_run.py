"""A run that was measured, as tables."""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # pandas and scipy come with them
    import pandas as pd

    from kvbench.runs.run_folder import Run
    from kvbench.summary.summary import Summary


class RecordedRun:
    """One run folder. Reads nothing again once it was read; changes nothing in the folder."""

    def __init__(self, run: Run) -> None:
        """Use :func:`read_run`."""
        self._run = run

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._run.path

    @property
    def manifest(self) -> dict[str, Any]:
        """What was run, on what, and how it ended (``manifest.json``)."""
        return self._run.manifest

    @property
    def status(self) -> str:
        """``complete``, ``invalid`` (measured, and its own checks say not to believe it), ``interrupted`` or ``running``."""
        return str(self._run.manifest.get("status"))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run is invalid, or was interrupted; empty where nothing speaks against it."""
        return tuple(self._run.manifest.get("reasons") or ())

    @cached_property
    def requests(self) -> pd.DataFrame:
        """A row a request, in the order in which they ended; a column a field of ``requests.jsonl``.

        Times whose names end in ``_s`` are seconds on one clock from the start of the run, those in ``_ms`` milliseconds, sizes tokens.
        Unknown is NaN or None, never 0.
        """
        return _table(self._run.requests)

    @cached_property
    def passes(self) -> pd.DataFrame:
        """A row for each arm, repeat and pass that ended; a column a field of ``passes.jsonl``, units as in :attr:`requests`."""
        return _table(self._run.passes)

    def summary(self, per_document: bool = False, per_repeat: bool = False) -> Summary:
        """What every report shows of the run.

        Args:
            per_document: add a row for each request of each pass.
            per_repeat: add a row for each repeat of each pass.
        """
        from kvbench.summary.summary import summarise

        return summarise(self._run, per_document, per_repeat)

    def __repr__(self) -> str:
        return f"<kvbench run {self.path}: {self.status}, {len(self._run.requests):,} requests>"


def read_run(path: str | PathLike[str]) -> RecordedRun:
    """Read a run folder, also one whose run was interrupted.

    Raises:
        kvbench.errors.UsageError: it is no run folder, or its files were changed after the run; one line that says which.
    """
    from kvbench.runs.run_folder import read_run as read

    return RecordedRun(read(Path(path)))


def _table(lines: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(lines)
