"""Transfers under way, and the device blocks they hold: a block that a copy still reads or writes must not be reused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.kv.transfer import Ticket
from kvbench.runners.engine.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Held:
    """One transfer of a sequence's KV, with a reference to each of its device blocks."""

    ticket: Ticket
    sequence: Sequence
    blocks: list[int]
    on_arrival: Callable[[], None] = lambda: None


class Transit:
    """The transfers that hold blocks, oldest first; they end in the order in which they were given."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.held: list[Held] = []

    def hold(self, held: Held) -> None:
        """Take over one reference of each of the blocks until the transfer has ended; it may have already."""
        if held.ticket.done():
            self._end(held)
        else:
            self.held.append(held)

    def collect(self) -> None:
        """Release the blocks of the transfers that have ended."""
        under_way = []
        for held in self.held:
            if held.ticket.done():
                self._end(held)
            else:
                under_way.append(held)
        self.held = under_way

    def reclaim(self) -> bool:
        """Wait for the oldest transfer and release its blocks; ``False`` if there is none."""
        if not self.held:
            return False
        self.held[0].ticket.wait()
        self.collect()
        return True

    def wait(self, sequence: Sequence | None = None) -> None:
        """Wait for a sequence's transfers (``None``: for all) and release their blocks."""
        for held in self.held:
            if sequence is None or held.sequence is sequence:
                held.ticket.wait()
        self.collect()

    def _end(self, held: Held) -> None:
        self._pool.release(held.blocks)
        held.on_arrival()
