"""A stall that is under way: the gap that a preemption makes between two output tokens, and where its time goes."""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.runs.records import Stall


@dataclass(slots=True)
class OpenStall:
    """From the last token before a preemption to the next one, however often the request is preempted in between; seconds."""

    after_token: int
    begin_s: float
    restoring_s: float = 0.0
    recomputing_s: float = 0.0
    first_step_s: float = 0.0

    def add_step(self, seconds: float, rebuilt_tokens: int) -> None:
        """Put a step where it belongs: one that rebuilds any KV the request had before is recomputing, also if it ends the stall."""
        if rebuilt_tokens:
            self.recomputing_s += seconds
        else:
            self.first_step_s += seconds

    def close(self, now: float) -> Stall:
        """The stall that the token delivered now ends: what was none of the other parts was waiting."""
        total = now - self.begin_s
        waiting = total - self.restoring_s - self.recomputing_s - self.first_step_s
        parts = (total, waiting, self.restoring_s, self.recomputing_s, self.first_step_s)
        return Stall(self.after_token, *(part * 1e3 for part in parts))
