"""GuideLLM's ``benchmarks.json``: a list of benchmarks, each with its requests by status (vllm-project/guidellm at ee7a774,
src/guidellm/schemas/request_stats.py).

Each benchmark is a load of its own: its strategy and rate. ``incomplete`` requests were cut off by the tool when its time was up, and are
left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvbench.analysis.logs.reader import LogReader, Object, at, flat, objects_at, tokens, with_repeats


def _load(benchmark: Object) -> dict[str, Any]:
    """The strategy, under ``config`` or, in older files, under ``args``."""
    strategy = at(benchmark, "config.strategy") or at(benchmark, "args.strategy")
    fields = strategy.items() if isinstance(strategy, dict) else ()
    return {("strategy" if name == "type_" else name): value for name, value in fields if isinstance(value, str | int | float)}


def _rows(files: Sequence[Object]) -> Iterator[dict[str, Any]]:
    benchmarks = [benchmark for file in files for benchmark in objects_at(file, "benchmarks")]
    for benchmark, load in with_repeats(benchmarks, _load):
        for status in ("successful", "errored"):
            for request in objects_at(benchmark, f"requests.{status}"):
                error = at(request, "info.error") or at(request, "error") or "errored"
                yield {
                    **flat(request),
                    **load,
                    "ttft_ms": request.get("time_to_first_token_ms"),
                    "error": str(error) if status == "errored" else None,
                    **tokens(request.get("prompt_tokens"), request.get("cached_tokens")),
                }


READER = LogReader("guidellm", "guidellm's benchmarks.json", lambda first: "benchmarks" in first, _rows)
