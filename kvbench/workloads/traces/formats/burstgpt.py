"""BurstGPT (HPMLL/BurstGPT, data/BurstGPT_1.csv): CSV of seconds and lengths. ``Response tokens`` is 0 where a request failed."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.workloads.traces.lengths import BLOCK, of_lengths
from kvbench.workloads.traces.line import TraceLine, shown
from kvbench.workloads.traces.reader import TraceContext, TracedRequest, TraceReader

_COLUMNS = {"Timestamp", "Request tokens", "Response tokens"}


def _requests(line: TraceLine, context: TraceContext) -> Iterator[TracedRequest]:
    said = line.values["Timestamp"]
    try:
        time = context.seconds(line, float(said))
    except (TypeError, ValueError):
        raise line.fault(f"Timestamp is a number of seconds, not {shown(said)}") from None
    yield of_lengths(line, context, time, "Request tokens", "Response tokens")


READER = TraceReader(
    "burstgpt",
    "BurstGPT's",
    lambda first: first.keys() >= _COLUMNS,
    _requests,
    lambda first: BLOCK,
    "s",
    lambda first: True,
    says_prefixes=False,
    is_csv=True,
)
