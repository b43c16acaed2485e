"""What a trace of hash ids holds in sum: its distinct blocks, and where in a prompt each lies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvbench.workloads.traces.trace import Trace

Integers = npt.NDArray[np.int64]


class Blocks(NamedTuple):
    """Blocks of prompts, by the tokens from the start of the prompt at which each begins and ends."""

    ids: Integers
    starts: Integers
    ends: Integers


def block_accesses(trace: Trace) -> Blocks:
    """Every block of every prompt, in order; the last one of a prompt ends with it."""
    size = trace.block_tokens
    assert size is not None
    first = np.frombuffer(trace.starts, dtype=np.int64)
    ids = np.frombuffer(trace.ids, dtype=np.int64)
    counts = np.diff(first)
    starts = (np.arange(len(ids)) - np.repeat(first[:-1], counts)) * size
    return Blocks(ids, starts, np.minimum(starts + size, np.repeat(np.frombuffer(trace.prompt_tokens, dtype=np.int64), counts)))


def distinct_blocks(trace: Trace) -> Blocks:
    """Every distinct block once, as long as it is where it is longest."""
    accesses = block_accesses(trace)
    order = np.lexsort((accesses.ends, accesses.ids))
    ids = accesses.ids[order]
    last = np.append(ids[1:] != ids[:-1], True)
    return Blocks(*(part[order][last] for part in accesses))
