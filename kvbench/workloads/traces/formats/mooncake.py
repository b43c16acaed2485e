"""Mooncake's traces (FAST '25, kvcache-ai/Mooncake, FAST25-release/traces): ``timestamp`` in ms, ``input_length``, ``output_length``, and
``hash_ids``, one for each block of 512 tokens, the last one perhaps not full.

Equal ids mean an equal prompt up to and including that block. Others write the same keys with ids for full blocks only, or with seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.workloads.traces.line import TraceLine
from kvbench.workloads.traces.reader import MOST_ID, TraceContext, TracedRequest, TraceReader

_SIZES = [2**power for power in range(3, 13)]
"""Blocks that a trace may be in, for messages."""


def hashed(line: TraceLine, context: TraceContext) -> Iterator[TracedRequest]:
    """The request of a line, in blocks. Ids may be of full blocks only: what of the prompt is left is then no access, and never hits."""
    time, size = context.seconds(line, line.values.get("timestamp")), context.block_tokens
    length, ids = line.integer("input_length", 1), line.integers("hash_ids", MOST_ID)
    if len(set(ids)) < len(ids):
        twice = next(hash_id for place, hash_id in enumerate(ids) if hash_id in ids[:place])
        raise line.fault(f"hash id {twice} comes twice; an id stands for everything before it too")
    if not _goes_with(length, len(ids), size):
        fitting = " or ".join(str(other) for other in _SIZES if _goes_with(length, len(ids), other))
        raise line.fault(
            f"input_length {length:,} takes {-(-length // size):,} blocks of {size}, and there are {len(ids):,} hash_ids; "
            f"--trace-block-size says how many tokens one stands for{fitting and f' ({fitting} would do)'}"
        )
    if length % size:
        context.partial_blocks.add(len(ids) > length // size)
        if len(context.partial_blocks) > 1:
            raise line.fault("hash_ids are of full blocks only, or of every block, and the lines ahead have the other form")
    rest = context.unknown(-(-length // size) - len(ids))
    yield TracedRequest(line.number, time, length, line.integer("output_length", 0), [*ids, *rest] if rest else ids)


def _goes_with(length: int, ids: int, size: int) -> bool:
    """Whether there is an id for each block, or for each full one."""
    return ids in (length // size, -(-length // size))


READER = TraceReader(
    "mooncake", "Mooncake's", lambda first: "hash_ids" in first and "chat_id" not in first, hashed, lambda first: 512, "ms"
)
