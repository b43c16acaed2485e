"""Who is told how a run goes, between requests and never during one."""

from __future__ import annotations

from kvbench.runs.records import RequestRecord


class Watcher:
    """Told by the session, on its own thread, between requests; may draw, must return at once, changes nothing. This one says nothing."""

    def note(self, text: str) -> None:
        """What is being done while no request runs: ``loading tiny``, ``warming up``; of a server also where its log is (``LOG_IS``)."""

    def started(self, requests: int) -> None:
        """The run begins; ``requests`` is the count over all repeats, arms and passes."""

    def pass_started(self, arm: str, repeat: int, pass_name: str) -> None:
        """The requests that follow belong to this pass."""

    def request_ended(self, record: RequestRecord) -> None:
        """One request ended, well or not."""

    def ended(self) -> None:
        """The run is over, however it ended. Safe to call twice."""
