"""What becomes of a preempted sequence's KV, and how it comes back (after the article on preemption)."""

from __future__ import annotations

from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.scheduling.sequence import Sequence


class Recompute:
    """The contract of a recovery policy, and the one that keeps nothing: a sequence comes back with all its tokens as one prefill.

    Full blocks stay findable until they are reused, so coming back may find part of them. Shared blocks stay with their other holders.
    No method changes a sequence's tokens. The next step of a sequence that comes back goes on from ``computed``; the last token of every
    sequence has no KV, so there is always one to compute. (A beam that is held has KV of all its tokens, and does not come back before it
    is given another.)
    """

    def preempt(self, sequence: Sequence, pool: BlockPool) -> None:
        """Give up the sequence's blocks, tail first: its table is empty and nothing of it computed afterwards.

        What is kept of it is in ``swap_slots`` and ``swapped_tokens``. Blocks that a copy still reads become free when it has ended.
        """
        pool.release(sequence.block_table)
        sequence.clear()

    def restore(self, sequence: Sequence, first: int) -> None:
        """Begin to bring what was kept into the new block table, from logical block ``first`` on: those before it hold their KV already."""

    def ready(self, sequence: Sequence) -> bool:
        """Whether a running sequence has its KV on the device; once it has, what was kept is let go."""
        return True

    def forget(self, sequence: Sequence, pool: BlockPool) -> None:
        """Give up everything of a sequence that ended or was cancelled: blocks, and what was kept."""
        Recompute.preempt(self, sequence, pool)
