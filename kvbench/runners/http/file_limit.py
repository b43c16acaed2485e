"""How many connections this process may have open."""

from __future__ import annotations

import contextlib
import sys

SPARE = 256
"""Files that are open beside the connections."""


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
