"""``vllm bench serve --save-detailed``: one result a line, with a list of times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.errors import UsageError


def of_vllm(path: Path, results: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The requests of ``vllm bench serve --save-detailed`` (vLLM 0.32): ``ttfts`` in seconds, 0.0 where no token came, ``errors`` in words.

    With ``--append-result`` a file holds several results, one a line: each is a repeat.
    """
    tables = []
    for repeat, result in enumerate(results):
        if "ttfts" not in result:
            raise UsageError(f"{path}: a result of vllm bench without its requests; run it with --save-result --save-detailed")
        ttfts = _list_of_vllm(path, result, "ttfts", len(result["ttfts"]) if isinstance(result["ttfts"], list) else 0)
        if any(isinstance(ttft, bool) or not isinstance(ttft, int | float) or not math.isfinite(ttft) for ttft in ttfts):
            raise UsageError(f"{path}: ttfts of vllm bench are numbers of seconds, and here one is none")
        errors = _list_of_vllm(path, result, "errors", len(ttfts)) or [None] * len(ttfts)
        failures = [error or (None if ttft != 0 else "no token") for ttft, error in zip(ttfts, errors, strict=True)]
        lengths = _list_of_vllm(path, result, "input_lens", len(ttfts)) or None
        tables.append(pd.DataFrame({"ttft_s": ttfts, "error": failures, "repeat": repeat, "prompt_tokens": lengths}))
    return pd.concat(tables, ignore_index=True)


def _list_of_vllm(path: Path, result: Mapping[str, Any], name: str, count: int) -> list[Any]:
    """A list of a result, one item a request; empty where it is not there.

    Raises:
        UsageError: no list, or of another length.
    """
    found = result.get(name) or []
    if not isinstance(found, list) or (found and len(found) != count):
        raise UsageError(f"{path}: {name} of vllm bench is a list with an item for each of ttfts, and here it is not")
    return found
