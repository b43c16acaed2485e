"""ShareGPT's conversations (as vLLM's and sglang's benchmarks read them): ``conversations`` of ``from`` and ``value``, a session a line.

Each turn of the human is a request: its prompt is all that was said before, answers as they were recorded, and it is asked when the one
ahead of it has been answered. What comes before the human's first turn, but for a system's, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvbench.workloads.traces.formats.own import own
from kvbench.workloads.traces.line import TraceLine, shown
from kvbench.workloads.traces.reader import TraceContext, TracedRequest, TraceReader

_ROLES = {"human": "user", "user": "user", "system": "system"} | dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard"), "assistant")


def _requests(line: TraceLine, context: TraceContext) -> Iterator[TracedRequest]:
    messages, turn = _messages(line), 0
    for place, message in enumerate(messages):
        if message["role"] == "user" and (place + 1 == len(messages) or messages[place + 1]["role"] == "assistant"):
            asked = TraceLine(line.file, line.number, {"messages": messages[: place + 1]})
            for request in own(asked, context):
                answer = len(context.text.plain(messages[place + 1]["content"])) if place + 1 < len(messages) else None
                yield TracedRequest(line.number, None, request.prompt_tokens, answer, request.ids, turn)
            turn += 1


def _messages(line: TraceLine) -> list[dict[str, Any]]:
    said = line.values.get("conversations")
    if not isinstance(said, list) or not all(isinstance(part, dict) and isinstance(part.get("value"), str) for part in said):
        raise line.fault(f"conversations is a list of objects with from and value, not {shown(said)}")
    unknown = [part.get("from") for part in said if str(part.get("from")) not in _ROLES]
    if unknown:
        raise line.fault(f"from is one of {', '.join(_ROLES)}, not {shown(unknown[0])}")
    messages = [{"role": _ROLES[part["from"]], "content": part["value"]} for part in said]
    while messages and messages[0]["role"] == "assistant":
        messages.pop(0)
    return messages


READER = TraceReader(
    "sharegpt", "ShareGPT's", lambda first: "conversations" in first, _requests, lambda first: None, "s", lambda first: False
)
