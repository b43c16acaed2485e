"""The seam of the timed path: one request's bytes out, stamped pieces of its answer back.

What lies behind it was chosen by measuring (``benchmarks/client_accuracy.py``): :mod:`kvbench.runners.http.connection`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an exchange ended before its answer was whole: a kind of :class:`kvbench.runs.records.RequestError`, and what happened."""

    kind: str
    message: str


class Receiver(Protocol):
    """Is told what becomes of one request, in this order: sent, status, body (any number of times), ended.

    ``ended`` comes once, always, and last; what comes before it may be missing. Times are of the run's clock, in seconds.
    """

    def sent(self, time_s: float) -> None:
        """The request is handed to the kernel next."""

    def status(self, status: int, location: str) -> None:
        """The head of the answer is there; ``location``: where it sends on to, empty where nowhere."""

    def body(self, time_s: float, data: bytes) -> Failure | None:
        """A piece of the body, and when the socket was read. A failure returned ends the exchange with it, and closes the connection."""

    def ended(self, time_s: float, failure: Failure | None) -> None:
        """The answer is whole, or will never be."""


class Call(Protocol):
    """A request on its way."""

    def abort(self, failure: Failure) -> None:
        """End it now: the connection is closed, and the receiver told. Nothing happens if it has ended."""


class Transport(Protocol):
    """Sends requests to one server, each once: nothing is ever sent again."""

    async def open(self, connections: int) -> None:
        """Connect ahead of the first request. A connection that fails is left for the request that needs it to find out."""

    def post(self, body: bytes, request_id: str, receiver: Receiver) -> Call:
        """Send a request as soon as there is a connection. The receiver may hear of ``sent`` before this returns; of the rest, later."""

    def close(self) -> None:
        """Close every connection; no receiver is told anything any more."""
