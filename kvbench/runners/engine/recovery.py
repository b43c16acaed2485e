"""Recovery policies: what becomes of a preempted sequence's KV, and how it comes back (source 000)."""

from __future__ import annotations

from typing import Protocol

from kvbench.runners.engine.block_pool import BlockPool
from kvbench.runners.engine.sequence import Sequence


class Recovery(Protocol):
    """What a preemption does with the sequence's KV."""

    def preempt(self, sequence: Sequence, pool: BlockPool) -> None:
        """Give up the sequence's blocks; sets ``block_table`` and ``computed`` to what is left. Its tokens are never changed."""


class Recompute:
    """Return every block at once; the sequence comes back with prompt and delivered tokens as one prefill.

    Full blocks stay findable until they are reused, so coming back may find part of them. Shared blocks stay with their other holders.
    """

    def preempt(self, sequence: Sequence, pool: BlockPool) -> None:
        """Release the blocks, tail first; nothing of the sequence has KV afterwards."""
        pool.release(sequence.block_table)
        sequence.block_table = []
        sequence.computed = 0
        sequence.published = 0
