"""How late the client's own event loop is: what a socket read may have waited for before it was stamped."""

from __future__ import annotations

from dataclasses import dataclass

INTERVAL_S = 0.01


@dataclass(frozen=True, slots=True)
class Lag:
    """How many seconds late a timer of the loop ran, every ``INTERVAL_S``; 0.0 means in time, to the millisecond that timers have.

    A late timer and a stamp that waited have the same causes: the client's own work, ``on_end`` included, and cores that others use.
    Where these values come near the times that were measured, the client explains them and not the server.
    """

    samples_s: list[float]
