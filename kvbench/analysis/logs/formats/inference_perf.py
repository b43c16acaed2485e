"""inference-perf's ``per_request_lifecycle_metrics.json``: a list of requests (kubernetes-sigs/inference-perf at 7de5ef2,
inference_perf/reportgen/base.py and apis/base.py).

Times are seconds of one clock: the first of ``output_token_times`` less ``start_time``. They stand under ``info``, in newer files under
``info.response_metrics``, where ``server_usage`` may say cached tokens. The file does not say which stage a request is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvbench.analysis.logs.reader import LogReader, Object, at, flat, tokens


def _rows(requests: Sequence[Object]) -> Iterator[dict[str, Any]]:
    for number, request in enumerate(requests, start=1):
        times = at(request, "info.response_metrics.output_token_times") or at(request, "info.output_token_times")
        start, first = request.get("start_time"), times[0] if isinstance(times, list) and times else None
        if first is not None and not all(isinstance(time, int | float) and not isinstance(time, bool) for time in (start, first)):
            raise ValueError(f"request {number}: start_time and output_token_times are numbers of seconds, not {start!r} and {first!r}")
        usage = at(request, "info.response_metrics.server_usage")
        cached, prompt = at(usage, "prompt_tokens_details.cached_tokens"), at(request, "info.input_tokens")
        error = request.get("error")
        yield {
            **flat(request),
            "ttft_s": None if first is None else round(first - start, 9),
            "error": str(at(error, "error_msg") or at(error, "error_type") or error) if error else None,
            **tokens(prompt if cached is None else at(usage, "prompt_tokens"), cached),
        }


READER = LogReader(
    "inference-perf",
    "inference-perf's per_request_lifecycle_metrics.json",
    lambda first: {"start_time", "end_time", "info"} <= first.keys(),
    _rows,
)
