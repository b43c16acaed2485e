"""Traces for tests: an excerpt of a real one, whole real ones where they are, and made files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kvbench.workloads.prompt_text import PromptText
from kvbench.workloads.traces.trace import Trace, load_trace
from kvbench.workloads.traces.tracefile import TraceFile

EXCERPT = Path(__file__).parent / "data" / "mooncake_conversation_excerpt.jsonl"


def mooncake_file(name: str) -> Path:
    """A whole trace of Mooncake's (``conversation``, ``synthetic``); skips where KVBENCH_TRACES does not name their folder."""
    folder = os.environ.get("KVBENCH_TRACES")
    if not folder:
        pytest.skip("KVBENCH_TRACES names no folder with Mooncake's traces")
    return Path(folder) / f"mooncake_{name}_trace.jsonl"


def write_trace(file: Path, lines: Iterable[dict[str, Any] | str]) -> Path:
    """A trace of these objects, or of lines as they are."""
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return file


def read_trace(
    file: Path,
    tokenizer: Path = Path("nowhere"),
    block_tokens: int | None = None,
    vocab: int | None = None,
    time_unit: str | None = None,
    **given: Any,
) -> Trace:
    """A trace in memory."""
    return load_trace(TraceFile(file, PromptText(tokenizer, "--trace"), block_tokens, vocab, time_unit), **given)


def hashed(*hash_ids: int, tokens: int, time_ms: int = 0, output: int = 4) -> dict[str, Any]:
    """A line of Mooncake's format."""
    return {"timestamp": time_ms, "input_length": tokens, "output_length": output, "hash_ids": list(hash_ids)}
