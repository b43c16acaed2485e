"""Mooncake's traces (FAST '25, kvcache-ai/Mooncake, FAST25-release/traces): ``timestamp`` in ms, ``input_length``, ``output_length``, and
``hash_ids``, one for each block of 512 tokens, the last one perhaps not full.

Equal ids mean an equal prompt up to and including that block.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.workloads.traces.line import TraceLine
from kvbench.workloads.traces.reader import MOST_ID, TraceContext, TracedRequest, TraceReader


def hashed(line: TraceLine, context: TraceContext) -> Iterator[TracedRequest]:
    """The request of a line, in blocks."""
    time, size = context.seconds(line, line.values.get("timestamp")), context.block_tokens
    length, ids = line.integer("input_length", 1), line.integers("hash_ids", MOST_ID)
    needed = -(-length // size)
    if len(ids) != needed:
        raise line.fault(
            f"input_length {length:,} takes {needed:,} blocks of {size}, and there are {len(ids):,} hash_ids; "
            "--trace-block-size says how many tokens one stands for"
        )
    if len(set(ids)) < len(ids):
        twice = next(hash_id for place, hash_id in enumerate(ids) if hash_id in ids[:place])
        raise line.fault(f"hash id {twice} comes twice; an id stands for everything before it too")
    yield TracedRequest(line.number, time, length, line.integer("output_length", 0), ids)


READER = TraceReader("mooncake", "Mooncake's", lambda first: "hash_ids" in first, hashed, 512, "ms")
