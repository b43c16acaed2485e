"""Files of OpenAI's Batch API (https://platform.openai.com/docs/guides/batch): a line a request, with ``custom_id``, ``url``, ``body``."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.workloads.traces.formats.own import own
from kvbench.workloads.traces.line import TraceLine, shown
from kvbench.workloads.traces.reader import TraceContext, TracedRequest, TraceReader


def _requests(line: TraceLine, context: TraceContext) -> Iterator[TracedRequest]:
    body = line.values.get("body")
    if not isinstance(body, dict):
        raise line.fault(f"body is the object that is sent, not {shown(body)}")
    yield from own(TraceLine(line.file, line.number, body), context)


READER = TraceReader(
    "openai-batch",
    "OpenAI's batches",
    lambda first: {"custom_id", "body"} <= first.keys(),
    _requests,
    lambda first: None,
    "s",
    lambda first: False,
)
