"""A trace as a prefix cache sees it: the blocks that each request reads, and what it leaves in the tiers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat

import numpy as np

from kvbench.errors import UsageError
from kvbench.models.units import ceil_div
from kvbench.runners.simulator.block_trace import BlockTrace, Integers
from kvbench.runners.simulator.prefixes import Prefixes
from kvbench.runners.simulator.simulator import UNKNOWN_OUTPUT, Footprint, footprint_of
from kvbench.workloads.traces.trace import Trace


def block_trace(trace: Trace, block_size: int) -> BlockTrace:
    """Every block of every prompt that the trace names, the last and perhaps not full one included.

    Raises ``UsageError``: a hash id does not stand for whole blocks.
    """
    if trace.block_tokens is not None:
        return BlockTrace.of(_parts(trace, block_size, whole=False))
    prefixes = Prefixes(block_size)  # a block filled up with what no prompt has equals another exactly where their tokens are equal
    prompts = (trace.ids_of(index) for index in range(len(trace)))
    return BlockTrace.of(prefixes.of([*ids, *repeat(UNKNOWN_OUTPUT, -len(ids) % block_size)]) for ids in prompts)


def footprints(trace: Trace, outputs: Sequence[int], block_size: int, chunk_tokens: int) -> Iterator[Footprint]:
    """What each request does to the tiers. What its answer fills has keys that no later prompt has: a trace does not say what was answered.

    ``outputs``: tokens of each answer. Raises ``UsageError``: a hash id does not stand for whole blocks.
    """
    if trace.block_tokens is None:
        blocks, chunks = Prefixes(block_size), Prefixes(chunk_tokens)
        yield from (footprint_of(trace.ids_of(index), output, blocks, chunks) for index, output in enumerate(outputs))
        return
    step = chunk_tokens // block_size  # a chunk's key is that of its last block
    answers: dict[tuple[int, int, int], int] = {}
    for index, full in enumerate(_parts(trace, block_size, whole=True)):
        prompt = trace.prompt_tokens[index]
        kv, last = prompt + outputs[index] - 1, trace.ids_of(index)[-1]
        own = range(len(full), kv // block_size)  # equal prompts have equal answers
        keys = full.tolist() + [-1 - answers.setdefault((last, prompt, place), len(answers)) for place in own]
        yield Footprint(prompt, kv, keys, keys[step - 1 :: step])


def _parts(trace: Trace, block_size: int, whole: bool) -> Iterator[Integers]:
    """Of each prompt of hash ids its blocks of ``block_size`` tokens, head first.

    ``whole``: with those that the trace does not name, and without a last one that is not full.
    """
    size = trace.block_tokens or 1
    parts = size // block_size
    if size % block_size:
        raise UsageError(f"--block-size {block_size} does not divide the {size} tokens that a hash id of the trace stands for")
    # Numbered from 0, so that an id has room for its parts.
    said = np.frombuffer(trace.ids, dtype=np.int64)
    ids = np.unique(said, return_inverse=True)[1].astype(np.int64) * parts
    for (start, end), tokens in zip(pairwise(trace.starts), trace.prompt_tokens, strict=True):
        count = tokens // block_size if whole else ceil_div(tokens, block_size)
        named = slice(start, end) if whole else np.flatnonzero(said[start:end] >= 0) + start
        yield (ids[named, None] + np.arange(parts)).ravel()[:count]
