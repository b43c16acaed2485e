"""The user's own requests: ``prompt`` or ``messages`` text or ``token_ids`` (``prompt_token_ids``, as vLLM calls them, or a ``prompt`` of
ids); optional ``timestamp`` in seconds, and ``output_tokens`` (or ``max_tokens``, ``max_completion_tokens``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvbench.workloads.traces.line import TraceLine, shown
from kvbench.workloads.traces.reader import TraceContext, TracedRequest, TraceReader

CONTENTS = ("prompt", "messages", "token_ids", "prompt_token_ids")
_OUTPUTS = ("output_tokens", "max_tokens", "max_completion_tokens")


def own(line: TraceLine, context: TraceContext) -> Iterator[TracedRequest]:
    """The request of a line, in tokens."""
    time, tokens = context.seconds(line, line.values.get("timestamp")), _tokens(line, context)
    if not tokens:
        raise line.fault("the prompt holds no token")
    if context.vocab is not None and max(tokens) >= context.vocab:
        raise line.fault(f"token id {max(tokens):,}, and the model's vocabulary ends at {context.vocab - 1:,}")
    name = next((name for name in _OUTPUTS if line.values.get(name) is not None), None)
    yield TracedRequest(line.number, time, len(tokens), None if name is None else line.integer(name, 0), tokens)


def _tokens(line: TraceLine, context: TraceContext) -> list[int]:
    given = [name for name in CONTENTS if name in line.values]
    if len(given) != 1:
        raise line.fault(f"one of {', '.join(CONTENTS)} is expected, not {' and '.join(given) or 'none'}")
    if given[0].endswith("token_ids") or (isinstance(line.values[given[0]], list) and given == ["prompt"]):
        return line.integers(given[0], 2**31)
    if given == ["messages"]:
        return _conversation(line, context)
    text = line.values["prompt"]
    if not isinstance(text, str):
        raise line.fault(f"prompt is a text or a list of token ids, not {shown(text)}")
    return context.text.prompt(text)


def _conversation(line: TraceLine, context: TraceContext) -> list[int]:
    messages = line.values["messages"]
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise line.fault(f"messages is a list of objects with role and content, not {shown(messages)}")
    try:
        return context.text.conversation([message | {"content": _flat(message.get("content"))} for message in messages])
    except ValueError as error:
        raise line.fault(str(error)) from None


def _flat(content: Any) -> Any:
    """A message's content as text: the texts of its parts a line each, as vLLM joins them for templates that take text."""
    if not isinstance(content, list):
        return content
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        raise ValueError("a part of a message's content is not text, and kvbench sends text only")
    return "\n".join(part["text"] for part in content)


READER = TraceReader("own", "your own", lambda first: any(name in first for name in CONTENTS), own, lambda first: None, "s")
