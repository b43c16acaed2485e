"""What this process needs so that stamps are in time: an event loop, enough connections, and no garbage collection."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import sys
from collections.abc import Iterator

SPARE = 256
"""Files that are open beside the connections."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed (there is none for Windows), else asyncio's own.

    Their stamps are equally good; uvloop takes less CPU for tokens that arrive alone (``benchmarks/client_accuracy.py`` shows both).
    """
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


def allow_connections(count: int) -> None:
    """Raise the soft limit on open files, often 1,024, as far as so many connections need it and the hard limit allows.

    Never lowers it; where it is not enough, the requests that find no file left say so.
    """
    if sys.platform == "win32":  # has no such limit
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE if hard == resource.RLIM_INFINITY else min(count + SPARE, hard)
    if soft != resource.RLIM_INFINITY and wanted > soft:
        with contextlib.suppress(OSError, ValueError):  # macOS has a limit of its own below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """A collection visits all prompts, and takes milliseconds in which nothing is stamped. The client makes no garbage that needs one."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
