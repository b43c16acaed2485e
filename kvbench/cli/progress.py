"""How far a run is, on stderr: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from bisect import insort
from contextlib import suppress

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kvbench.cli import colour, output
from kvbench.drawing.clean import one_line
from kvbench.runners.base import LOG_IS
from kvbench.runs.records import RequestRecord
from kvbench.session.watcher import Watcher

EVERY_S = 30.0
"""Between two lines where nothing else is said."""


def watcher(quiet: bool) -> Watcher:
    """A bar in a terminal, lines where stderr is none, nothing with ``--quiet``."""
    if quiet or sys.stderr is None:
        return Watcher()
    return ProgressBar(Console(stderr=True, no_color=not colour.shown_on(sys.stderr))) if sys.stderr.isatty() else ProgressLines()


class PassSoFar:
    """The requests of a pass that have ended: their median TTFT, and prompt and output tokens a second."""

    def __init__(self) -> None:
        self._ttfts: list[float] = []
        self._tokens = 0
        self._first_s = self._last_s = 0.0

    def add(self, record: RequestRecord) -> None:
        """Count a request; one that failed has neither a TTFT nor tokens."""
        if record.error is not None or record.sent_s is None:
            return
        if record.ttft_ms is not None:
            insort(self._ttfts, record.ttft_ms)
        self._first_s = min(self._first_s, record.sent_s) if self._tokens else record.sent_s
        self._last_s = max(self._last_s, record.end_s)
        self._tokens += (record.prompt_tokens or record.prompt_tokens_sent) + (record.output_tokens or 0)

    def p50(self) -> str:
        """``p50 12.3 ms``."""
        ttfts, middle = self._ttfts, len(self._ttfts) // 2
        return f"p50 {(ttfts[middle] + ttfts[-middle - 1]) / 2:.1f} ms" if ttfts else "p50 –"

    def rate(self) -> str:
        """``1,234 tokens/s``."""
        took_s = self._last_s - self._first_s
        return f"{self._tokens / took_s:,.0f} tokens/s" if took_s > 0 else "– tokens/s"


def _where(arm: str, repeat: int, pass_name: str) -> str:
    return f"{arm} {pass_name}" if repeat == 0 else f"{arm} {pass_name} (repeat {repeat + 1})"


class ProgressBar(Watcher):
    """A watcher that draws a bar between requests. No thread refreshes it: one that drew during a request would be in its time."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("starting", total=None, figures="")
        self._where = ""
        self._pass = PassSoFar()

    def note(self, text: str) -> None:
        """Show the text instead of arm and pass."""
        self._draw(description=one_line(text.partition(LOG_IS)[0]), figures="")

    def started(self, requests: int) -> None:
        """Start counting to the number of requests."""
        self._progress.reset(self._task, total=requests)
        self._draw()

    def pass_started(self, arm: str, repeat: int, pass_name: str) -> None:
        """Show where the run is; the figures begin anew."""
        self._where, self._pass = _where(arm, repeat, pass_name), PassSoFar()
        self._draw(description=self._where, figures="")

    def request_ended(self, record: RequestRecord) -> None:
        """Count it, and show the figures of the pass so far."""
        self._pass.add(record)
        self._progress.advance(self._task)
        self._draw(description=self._where, figures=f"{self._pass.p50()} {self._pass.rate()}")

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


class ProgressLines(Watcher):
    """A watcher that writes a line when a server starts and at each pass, and from a thread every 30 s.

    The thread sleeps in between, and writes one short line, so that a request or a server that takes minutes is no silence.
    """

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._doing, self._since = "starting", time.monotonic()
        self._where = ""
        self._total = self._done = 0
        self._begun = 0.0
        self._pass = PassSoFar()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, text: str) -> None:
        """Say where the log of a server is; anything else is said if it takes long."""
        self._doing, self._since, self._where = text.partition(LOG_IS)[0], time.monotonic(), ""
        if LOG_IS in text:
            output.say(text)
        self._watch()

    def started(self, requests: int) -> None:
        """Start counting to the number of requests."""
        self._total, self._done, self._begun = requests, 0, time.monotonic()

    def pass_started(self, arm: str, repeat: int, pass_name: str) -> None:
        """Say where the run is; the figures begin anew."""
        self._where, self._pass = _where(arm, repeat, pass_name), PassSoFar()
        output.say(f"{self._where}: {self._counted()}")
        self._watch()

    def request_ended(self, record: RequestRecord) -> None:
        """Count it."""
        self._done += 1
        self._pass.add(record)

    def ended(self) -> None:
        """Stop the thread."""
        if self._thread is not None:
            self._over.set()
            self._thread.join()
            self._thread = None

    def _watch(self) -> None:
        if self._thread is None:
            self._over.clear()
            self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)
            self._thread.start()

    def _tell(self) -> None:
        while not self._over.wait(self._every_s):
            if self._where:
                output.say(f"{self._where}: {self._counted()}, {self._pass.p50()}, {self._pass.rate()}")
            else:
                output.say(f"{self._doing}: {_duration(time.monotonic() - self._since)} so far")

    def _counted(self) -> str:
        """``12 of 60 requests done, about 40 s left``."""
        left = ""
        if 0 < self._done < self._total:
            each_s = (time.monotonic() - self._begun) / self._done
            left = f", about {_duration(each_s * (self._total - self._done))} left"
        return f"{self._done:,} of {self._total:,} requests done{left}"


def _duration(seconds: float) -> str:
    """``45 s``, ``12 min`` or ``1.5 h``."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
