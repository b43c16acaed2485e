"""llmperf's ``*_individual_responses.json``: a list of requests (ray-project/llmperf, token_benchmark_ray.py and
src/llmperf/ray_clients/openai_chat_completions_client.py).

``ttft_s`` is 0 where no token came; a failed request has an ``error_code``, -1 where no status came. The file does not say the load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvbench.analysis.logs.reader import LogReader, Object


def _rows(requests: Sequence[Object]) -> Iterator[dict[str, Any]]:
    for request in requests:
        said = [str(request[name]) for name in ("error_code", "error_msg") if request.get(name) not in (None, "")]
        others = {name: value for name, value in request.items() if name not in ("error_code", "error_msg")}
        yield {**others, "error": ": ".join(said) or None, "prompt_tokens": request.get("number_input_tokens")}


READER = LogReader("llmperf", "llmperf's individual_responses.json", lambda first: {"ttft_s", "number_input_tokens"} <= first.keys(), _rows)
