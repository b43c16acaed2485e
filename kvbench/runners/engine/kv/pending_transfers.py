"""Transfers under way, and the device blocks they hold: a block that a copy still reads or writes must not be reused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.kv.transfer import Ticket
from kvbench.runners.engine.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PendingTransfer:
    """One transfer of a sequence's KV, with a reference to each of its device blocks."""

    ticket: Ticket
    sequence: Sequence
    blocks: list[int]
    on_arrival: Callable[[], None] = lambda: None


class PendingTransfers:
    """The transfers that hold blocks, oldest first; they end in the order in which they were given."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.transfers: list[PendingTransfer] = []

    def hold(self, transfer: PendingTransfer) -> None:
        """Take over one reference of each of the blocks until the transfer has ended; it may have already."""
        if transfer.ticket.done():
            self._end(transfer)
        else:
            self.transfers.append(transfer)

    def collect(self) -> None:
        """Release the blocks of the transfers that have ended."""
        pending, self.transfers = self.transfers, []
        for transfer in pending:
            self.hold(transfer)

    def reclaim(self) -> bool:
        """Wait for the oldest transfer and release its blocks; ``False`` if there is none."""
        if not self.transfers:
            return False
        self.transfers[0].ticket.wait()
        self.collect()
        return True

    def wait(self, sequence: Sequence | None = None) -> None:
        """Wait for a sequence's transfers (``None``: for all) and release their blocks."""
        for transfer in self.transfers:
            if sequence is None or transfer.sequence is sequence:
                transfer.ticket.wait()
        self.collect()

    def _end(self, transfer: PendingTransfer) -> None:
        self._pool.release(transfer.blocks)
        transfer.on_arrival()
