"""The readers of traces: one in each file of ``formats/``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvbench.registry.registry import Registry
from kvbench.workloads.traces.reader import TraceReader

TRACE_READERS: Registry[TraceReader] = Registry("kvbench.workloads.traces.formats", "READER")


def reader_of(first: Mapping[str, Any]) -> TraceReader | None:
    """The reader for a trace with this first line; ``None``: there is none."""
    return next((reader for reader in TRACE_READERS.all().values() if reader.fits(first)), None)
