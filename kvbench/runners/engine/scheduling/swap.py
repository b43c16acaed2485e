"""Recovery by swap (after the article on preemption): KV goes to host memory and comes back into whatever blocks are free.

The swap space is beside the host tier and apart from it: what a preempted request needs is never evicted. Every block with KV is kept,
those that others share included (they may be gone when the sequence returns); on return, blocks that the prefix cache still finds are
used as they are, and only the rest is copied back.
"""

from __future__ import annotations

from kvbench.models.units import ceil_div
from kvbench.runners.engine.journal import Journal
from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.kv.pending_transfers import PendingTransfer, PendingTransfers
from kvbench.runners.engine.kv.transfer import SwapCopy, Transfer
from kvbench.runners.engine.scheduling.recovery import Recompute
from kvbench.runners.engine.scheduling.sequence import Loading, Sequence


class Swap(Recompute):
    """Keeps KV in a space of ``places``, each as large as a block; one that does not fit is recomputed.

    Transfers run in the order given, so places may be let go while a copy from or to them is under way.
    """

    def __init__(self, places: int, block_size: int, transfer: Transfer, pending: PendingTransfers, journal: Journal) -> None:
        self.space = BlockPool(places)
        self._block_size = block_size
        self._transfer = transfer
        self._pending = pending
        self._journal = journal

    def preempt(self, sequence: Sequence, pool: BlockPool) -> None:
        """Begin to copy the blocks with KV to the swap space; they are held until the copy has ended, all others are released."""
        if sequence.loading is not None:
            self._stop_loading(sequence)
            return
        tokens = sequence.computed
        count = ceil_div(tokens, self._block_size)
        if count > self.space.free_blocks:
            self._journal.counters.swap_full += 1
            self._journal.note("swap full", sequence, tokens=tokens)
        if count == 0 or count > self.space.free_blocks:
            super().preempt(sequence, pool)
            return
        pool.release(sequence.block_table[count:])
        blocks = sequence.block_table[:count]
        begin_s = self._journal.clock()
        sequence.swap_slots, sequence.swapped_tokens = self.space.allocate(count), tokens
        ticket = self._transfer.store([SwapCopy(sequence.swap_slots, blocks)])
        self._pending.hold(PendingTransfer(ticket, sequence, blocks, lambda: self._journal.swapped_out(sequence, tokens, count, begin_s)))
        sequence.clear()

    def restore(self, sequence: Sequence, first: int) -> None:
        """Begin to copy the kept blocks back, but for those the prefix cache found."""
        places = sequence.swap_slots[first:]
        if not places:
            self._let_go(sequence)
            return
        begin_s = self._journal.clock()
        ticket = self._transfer.load([SwapCopy(places, sequence.block_table[first : len(sequence.swap_slots)])])
        sequence.loading = Loading(ticket, begin_s, sequence.swapped_tokens - first * self._block_size, len(places))

    def ready(self, sequence: Sequence) -> bool:
        """Whether the copy back has ended; its places are let go then."""
        if sequence.loading is None:
            return True
        if not sequence.loading.ticket.done():
            return False
        self._journal.swapped_in(sequence, sequence.loading)
        sequence.loading = None
        self._let_go(sequence)
        return True

    def forget(self, sequence: Sequence, pool: BlockPool) -> None:
        """Release blocks and places; blocks that are being copied back into are held until that has ended."""
        if sequence.loading is not None:
            self._stop_loading(sequence)
        super().forget(sequence, pool)
        self._let_go(sequence)

    def _stop_loading(self, sequence: Sequence) -> None:
        """Give the new blocks up again; what was kept is still whole."""
        assert sequence.loading is not None
        self._journal.swapped_in(sequence, sequence.loading, "swap in stopped")
        self._pending.hold(PendingTransfer(sequence.loading.ticket, sequence, sequence.block_table))
        sequence.loading = None
        sequence.clear()

    def _let_go(self, sequence: Sequence) -> None:
        self.space.release(sequence.swap_slots)
        sequence.swap_slots, sequence.swapped_tokens = [], 0
