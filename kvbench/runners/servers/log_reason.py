"""Why a server did not start: the lines of its log that tell it, and what to change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kvbench.errors import RunFailed

LINES, WIDTH = 3, 320
"""At most so many lines of the log are shown, each cut to so many characters."""

TAIL_BYTES = 1 << 18


CAUSES = {
    r"No common block size for \d+": "on the CPU the block size is a multiple of 32: --block-size 32",
    r"No module named '?vllm": "this interpreter has no vLLM: --vllm-python PATH names the one that has",
    r"No module named '?lmcache": "this interpreter has no LMCache: install lmcache there, or leave its tiers out (--tier none)",
    r"larger than the available KV cache memory": "raise --kv-tokens, or lower --vllm-arg=--max-model-len=N",
    r"No available memory for the cache blocks": "raise --vllm-arg=--gpu-memory-utilization=F, or free memory on the device",
    r"Free memory on device": "free memory on the device, or lower --vllm-arg=--gpu-memory-utilization=F",
    r"on kv cache allocation is less than requested memory|VLLM_CPU_KVCACHE_SPACE": (
        "free memory, or give the KV cache less: --env VLLM_CPU_KVCACHE_SPACE=1 (GiB)"
    ),
    r"out of memory|MemoryError|can't allocate memory|Cannot allocate memory": "lower --host-gib or --kv-tokens, or free memory",
    r"not a valid model identifier|outgoing traffic has been disabled|couldn't connect to|Repo id must be|LocalEntryNotFound": (
        "--model names a folder, or a model that the hub's cache holds; --env HF_HUB_OFFLINE=0 lets the server download it"
    ),
    r"unrecognized arguments|invalid choice|argument --\S+:": "this version knows no such argument: correct --vllm-arg",
    r"address already in use": "another process took the port: start again, or name a free one",
    r"No handler registered for operation register_kv_cache": "this LMCache needs --supported-transfer-mode auto to serve the CPU",
    r"NOAUTH|WRONGPASS": "the Redis server wants a password: --redis redis://:PASSWORD@HOST:PORT",
    r"No space left on device": "the disk is full: free space, or name another folder",
}
"""Known ways to fail: how the line in the log is recognised, and what to change."""

TROUBLE = r"No supported \w+ connector found|degraded mode|Failed to batched allocate|LMCache server is unhealthy"
"""Lines of servers that run, and whose tier does not."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(  # (EngineCore pid=7) ERROR 11-29 21:03:23 [core.py:99], or [2026-11-29 21:03:23,001] LMCache ERROR:
    r"^(?:\([^)]*pid=\d+\)\s*)*(?:\[?(?:[A-Z]+ )?[\d\-]{5,10} [\d:,.]+\]?\s*)?(?:LMCache [A-Z]+:\s*)?(?:\[[\w./]+:\d+\]\s*)?"
)
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b:?|\berror: |\bERROR\b|^Killed", re.ASCII)
_EMPTY = re.compile(r"^\S*(?:Error|Exception):?$|See root cause above|EngineCore failed to start")


def explain(what: str, log: Path, companions: tuple[Path, ...] = ()) -> RunFailed:
    """The error of a server that did not start: ``what`` happened, the lines that tell why, what to change, where the logs are.

    Args:
        what: such as ``the vLLM server ended with code 1``.
        log: the server's log.
        companions: logs of servers it depends on; one of them may hold the reason.
    """
    lines = [line for file in (log, *companions) for line in _lines(file)]
    causes = ((line, remedy) for line in lines for pattern, remedy in CAUSES.items() if re.search(pattern, line, re.IGNORECASE))
    known, remedy = next(causes, (None, ""))
    words = " | ".join(line[:WIDTH] for line in (_telling(lines) if known is None else [known])) or "its log says nothing"
    return RunFailed(f"{what}: {words}{remedy and f'; {remedy}'} (log: {', '.join(str(file) for file in (log, *companions))})")


def find_trouble(*logs: Path) -> str | None:
    """The first line of a running server's logs that says why its tier does not work; ``None`` where none does."""
    line = next((line for log in logs for line in _lines(log) if re.search(TROUBLE, line, re.IGNORECASE)), None)
    return None if line is None else line[:WIDTH]


def _telling(lines: list[str]) -> list[str]:
    """The last errors the log names; its last lines where it names none."""
    errors = [line for line in lines if _ERROR.search(line) and not _EMPTY.search(line)]
    return list(dict.fromkeys(errors))[-LINES:] or lines[-LINES:]


def _lines(file: Path) -> Iterator[str]:
    """The end of the log without colours, time stamps and frames of tracebacks, which start with spaces."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return
    for raw in text.splitlines():
        line = _PREFIX.sub("", _COLOUR.sub("", raw), count=1)
        if line.strip() and not line.startswith(" "):
            yield " ".join(line.split())
