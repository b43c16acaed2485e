"""Qwen's traces of Aliyun Bailian (alibaba-edu/qwen-bailian-usagetraces-anon, README at 03a51e3): Mooncake's keys and ``chat_id``,
``parent_chat_id``, ``turn``, ``type``. Seconds, and blocks of 16 tokens."""

from __future__ import annotations

from kvbench.workloads.traces.formats.mooncake import hashed
from kvbench.workloads.traces.reader import TraceReader

READER = TraceReader("bailian", "Bailian's", lambda first: {"hash_ids", "chat_id"} <= first.keys(), hashed, lambda first: 16, "s")
