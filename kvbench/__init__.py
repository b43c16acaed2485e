"""kvbench: what a KV-cache tier is worth, how large it must be, and whether the last upgrade undid it.

As a library it reads what it measured: :func:`read_run` and :func:`compare` (docs/library.md).
"""

from kvbench.library.comparing import compare
from kvbench.library.recorded_run import RecordedRun, read_run
from kvbench.runs.version import __version__

__all__ = ["RecordedRun", "__version__", "compare", "read_run"]
