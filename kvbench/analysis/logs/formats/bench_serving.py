"""``vllm bench serve --save-detailed`` (vLLM 0.32, vllm/benchmarks/serve.py) and sglang's ``bench_serving --output-details``
(python/sglang/benchmark/serving.py at 00f9ec4), which was made from it: an object a run, its requests as lists.

``ttfts`` are in seconds, 0.0 where no token came; ``errors`` are words. Both append results to one file. sglang's ``--cache-report`` says
``cached_tokens_details`` by tier; its ``cached_tokens`` is 0 where the server says nothing, and is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvbench.analysis.logs.reader import LogReader, Object, at, with_repeats

_NUMBERS = ("num_prompts", "request_rate", "burstiness", "max_concurrency", "ramp_up_start_rps", "ramp_up_end_rps")
_OF_LOAD = {"output_tokens": "output_lens", "e2el_s": "latencies", "itls_s": "itls", "sent_s": "start_times"}
_MOST_S = 1e9
_SGLANG = ("sharegpt_output_len", "random_input_len", "random_output_len", "random_range_ratio")


def _load(result: Object) -> dict[str, Any]:
    """What was asked of the tool: its numbers, and every word, as ``--metadata KEY=VALUE`` is kept too; not when."""
    return {name: value for name, value in result.items() if name in (*_NUMBERS, *_SGLANG) or (isinstance(value, str) and name != "date")}


def _list(result: Object, name: str, count: int) -> list[Any]:
    """A list with an item a request; of ``None`` where it is not there."""
    found = result.get(name) or [None] * count
    if not isinstance(found, list) or len(found) != count:
        raise ValueError(f"{name} is a list with an item for each of ttfts, and here it is not")
    return found


def _rows(results: Sequence[Object]) -> Iterator[dict[str, Any]]:
    for result, load in with_repeats(results, _load):
        times = result.get("ttfts")
        if times is None:
            raise ValueError("a result without its requests; run it with --save-result --save-detailed (sglang: --output-details)")
        if not isinstance(times, list):
            raise ValueError("ttfts is a list of seconds, and here it is not")
        if any(isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) < _MOST_S for time in times):
            raise ValueError("ttfts are numbers of seconds, and here one is none")
        columns = (_list(result, name, len(times)) for name in ("errors", "input_lens", "cached_tokens_details", *_OF_LOAD.values()))
        for time, error, prompt, cached, *rest in zip(times, *columns, strict=True):
            whole = {**dict(zip(_OF_LOAD, rest, strict=True)), "duration_s": result.get("duration")}
            yield {**load, "ttft_s": time, "error": error or None, "prompt_tokens": prompt, **_by_tier(prompt, cached), **whole}


def _by_tier(prompt: Any, cached: Any) -> dict[str, Any]:
    if not isinstance(cached, Mapping):
        return {}
    device, *others = (at(cached, name) or 0 for name in ("device", "host", "storage"))
    numbers = (prompt, device, *others)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in numbers):
        return {}
    host = sum(others)
    return {"cached_tokens_device": device, "cached_tokens_host": host, "computed_tokens": max(prompt - device - host, 0)}


READER = LogReader(
    "bench-serving",
    "vllm bench serve --save-detailed (sglang's too)",
    lambda first: bool({"ttfts", "median_ttft_ms"} & first.keys()),
    _rows,
)
