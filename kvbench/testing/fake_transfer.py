"""A transfer that takes its time: every copy happens late, and exactly when the test says so.

It finds what a real asynchronous copy finds only sometimes: a block that is reused while it is still being read, a load that overtakes a
store, a store that nobody waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbench.runners.engine.kv.transfer import HostCopies, Ticket, Transfer


class DelayedTicket:
    """One copy that was asked for; done once the transfer has made it."""

    def __init__(self, transfer: DelayedTransfer, copies: HostCopies, start: Callable[[HostCopies], Ticket]) -> None:
        self.copies = copies
        self._transfer = transfer
        self._start = start
        self._done = False

    def done(self) -> bool:
        """Whether the copy was made."""
        return self._done

    def wait(self) -> None:
        """Make this copy, and before it all that were asked for earlier."""
        while not self._done:
            self._transfer.complete(1)

    def make(self) -> None:
        """Make the copy now, from whatever the source holds by now."""
        self._start(self.copies).wait()
        self._done = True


class DelayedTransfer:
    """A :class:`~kvbench.runners.engine.kv.transfer.Transfer` whose copies are made, in order, when waited for or by :meth:`complete`.

    Keeps the contract: first asked for, first made. ``pending`` are the tickets of the copies still to be made, oldest first.
    """

    def __init__(self, inner: Transfer) -> None:
        """``inner`` makes the copies."""
        self._inner = inner
        self.pending: deque[DelayedTicket] = deque()

    def store(self, copies: HostCopies) -> DelayedTicket:
        """Note a store; nothing is copied yet."""
        return self._note(copies, self._inner.store)

    def load(self, copies: HostCopies) -> DelayedTicket:
        """Note a load; nothing is copied yet."""
        return self._note(copies, self._inner.load)

    def complete(self, count: int | None = None) -> int:
        """Make the ``count`` oldest copies (``None``: all); returns how many were made."""
        made = 0
        while self.pending and made != count:
            self.pending.popleft().make()
            made += 1
        return made

    def _note(self, copies: HostCopies, start: Callable[[HostCopies], Ticket]) -> DelayedTicket:
        ticket = DelayedTicket(self, copies, start)
        self.pending.append(ticket)
        return ticket
