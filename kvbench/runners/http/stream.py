"""Server-sent events of a streamed answer, cut out of its bytes.

See the WHATWG specification (HTML, "Server-sent events").
"""

from __future__ import annotations

DONE = b"[DONE]"
KEEPALIVES = (b"ping", b"heartbeat", b"keepalive", b"keep-alive")
"""Names of events (``event: ping``) that only keep a connection open."""

BOM = b"\xef\xbb\xbf"
"""What a stream may begin with, and says nothing."""


class EventStream:
    """Cuts a byte stream into the data of its events, however it was cut into reads. Lines may be of any length.

    Events without data, and those that only keep the connection open, are left out.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes | None] = []  # lines; first None where the event is named as one that is left out
        self._after_cr, self._at_start = False, True

    @property
    def unfinished(self) -> bool:
        """Whether an event has begun whose end has not been read."""
        return bool(self._data) or any(self._line)

    def feed(self, data: bytes) -> list[bytes]:
        """The events that this read completes, in order."""
        if self._after_cr and data.startswith(b"\n"):  # a line break that was cut in two
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        *lines, rest = data.split(b"\n") if b"\r" not in data else data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[bytes] = []
        for line in lines:
            if self._line:
                line = b"".join([*self._line, line])
                self._line = []
            if self._at_start:
                line, self._at_start = line.removeprefix(BOM), False
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and self._data:
                if event := self._data[0] if len(self._data) == 1 else self._joined():
                    events.append(event)
                self._data = []
            elif line.startswith(b"event:") and line[6:].strip() in KEEPALIVES:
                self._data.insert(0, None)
        if rest:
            self._line.append(rest)
        return events

    def _joined(self) -> bytes | None:
        """An event of several lines; ``None`` where it is left out."""
        lines = [line for line in self._data if line is not None]
        return b"\n".join(lines) if len(lines) == len(self._data) else None
