"""A server that behaves as its first argument says, on the port that is its second: for tests of those who start and stop servers.

ready      answers 200 to everything
late       the same, after half a second
dies       logs a traceback and ends with code 3
hangs      never answers
stubborn   ready, and deaf to SIGTERM
stray      ready, with a child that is deaf to SIGTERM, in a session of its own, and whose parent is gone
family     the same, and one more deaf child, in its own group
abandons   starts such a family, and ends with code 5
"""

from __future__ import annotations

import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

TRACEBACK = """(EngineCore pid=7) ERROR 11-29 21:03:23 [core.py:1234] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-29 21:03:23 [core.py:1234] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-29 21:03:23 [core.py:1234]   File "core.py", line 1, in run
(EngineCore pid=7) ERROR 11-29 21:03:23 [core.py:1234] ValueError: No common block size for 16 (CPU_ATTN: [MultipleOf(32)]).
"""


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def be_deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def have_children(*sessions: bool) -> None:
    """A deaf child for each, there when this returns; one with a session of its own has lost its parent too."""
    read, write = os.pipe()
    for own_session in sessions:
        if os.fork():
            continue
        be_deaf()
        if own_session:
            os.setsid()
            if os.fork():
                os._exit(0)
        os.write(write, b".")
        while True:
            time.sleep(60)
    there = b""
    while len(there) < len(sessions):
        there += os.read(read, 2)


def main(behaviour: str, port: int) -> None:
    print("hello from the server", flush=True)
    if behaviour == "dies":
        print(TRACEBACK, file=sys.stderr, flush=True)
        sys.exit(3)
    if behaviour == "hangs":
        time.sleep(600)
    if behaviour == "late":
        time.sleep(0.5)
    if behaviour == "stubborn":
        be_deaf()
    if behaviour == "stray":
        have_children(True)
    if behaviour in ("family", "abandons"):
        have_children(False, True)
    if behaviour == "abandons":
        sys.exit(5)
    HTTPServer(("127.0.0.1", port), Answer).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
