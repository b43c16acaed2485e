"""The progress bar: arm, pass, request, running p50 and time left, on stderr, drawn only between requests."""

from __future__ import annotations

import sys
from contextlib import suppress
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kvbench.drawing.clean import one_line
from kvbench.runs.records import RequestRecord
from kvbench.session.watcher import Watcher


def watcher(quiet: bool) -> Watcher:
    """A progress bar where somebody can see one: not with ``--quiet``, and not where stderr is no terminal."""
    return Watcher() if quiet or sys.stderr is None or not sys.stderr.isatty() else ProgressBar(Console(stderr=True))


class ProgressBar(Watcher):
    """A watcher that draws a bar. No thread refreshes it: one that woke up during a request would be in its time."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[p50]}"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("starting", total=None, p50="")
        self._where = ""
        self._ttfts: list[float] = []

    def note(self, text: str) -> None:
        """Show the text in place of arm and pass."""
        self._draw(description=one_line(text), p50="")

    def started(self, requests: int) -> None:
        """Start counting to the number of requests."""
        self._progress.reset(self._task, total=requests)
        self._draw()

    def pass_started(self, arm: str, repeat: int, pass_name: str) -> None:
        """Show where the run is; the running p50 begins anew."""
        self._where = f"{arm} {pass_name}" if repeat == 0 else f"{arm} {pass_name} (repeat {repeat + 1})"
        self._ttfts = []
        self._draw(description=self._where, p50="")

    def request_ended(self, record: RequestRecord) -> None:
        """Count it, and show the p50 of the pass so far."""
        if record.ttft_ms is not None and record.error is None:
            self._ttfts.append(record.ttft_ms)
        p50 = f"p50 {median(self._ttfts):.1f} ms" if self._ttfts else "p50 –"
        self._progress.advance(self._task)
        self._draw(description=self._where, p50=p50)

    def ended(self) -> None:
        """Take the bar away."""
        with suppress(OSError):
            self._progress.stop()

    def _draw(self, **fields: str) -> None:
        self._progress.update(self._task, **fields)  # type: ignore[arg-type]
        with suppress(OSError):  # a terminal that is gone ends no run
            if not self._progress.live.is_started:
                self._progress.start()
            self._progress.refresh()
