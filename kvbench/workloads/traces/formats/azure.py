"""Azure's LLM inference traces of 2023 and 2024 (Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024.md): CSV of dates and
lengths."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from kvbench.workloads.traces.lengths import BLOCK, of_lengths
from kvbench.workloads.traces.line import TraceLine, shown
from kvbench.workloads.traces.reader import TraceContext, TracedRequest, TraceReader

_COLUMNS = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}


def _requests(line: TraceLine, context: TraceContext) -> Iterator[TracedRequest]:
    said = line.values["TIMESTAMP"]
    try:
        date = datetime.fromisoformat(said or "")
    except ValueError:
        raise line.fault(f"TIMESTAMP is a date, as 2023-11-16 09:00:03.97, not {shown(said)}") from None
    time = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    yield of_lengths(line, context, time, "ContextTokens", "GeneratedTokens")


READER = TraceReader(
    "azure",
    "Azure's",
    lambda first: first.keys() >= _COLUMNS,
    _requests,
    lambda first: BLOCK,
    None,
    lambda first: True,
    says_prefixes=False,
    is_csv=True,
)
