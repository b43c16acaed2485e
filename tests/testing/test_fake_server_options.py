"""The fake server's command line: others' tests are written against it, so an option that was there stays."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

FAKE_SERVER = [sys.executable, "-m", "kvbench.testing.fake_server"]

VALUES = {
    "host": "127.0.0.1",
    "port": "0",
    "first-token-s": "0.0",
    "gap-s": "0.0",
    "ending-s": "0.0",
    "chunk-tokens": "1",
    "write-chunks": "1",
    "pieces": "1",
    "padding-bytes": "0",
    "reasoning-tokens": "0",
    "usage-off-by": "0",
    "close-idle-s": "60.0",
    "api-key": "",
    "fault": "",
    "fault-after": "0",
    "fault-every": "1",
    "fault-from": "1",
    "fault-status": "500",
    "pool-tokens": "1600",
    "block-size": "16",
    "host-tokens": "4096",
    "store-s": "0.0",
    "count-s": "0.0",
    "tier-lookups": "1",
    "hides": "",
    "refuses": "",
    "stops-after": "8",
    "metrics-faults": "0",
    "metrics-fault-from": "1",
    "foreign-tokens": "0",
    "preempt-every": "2",
    "restart-after": "100",
}
"""Options with a value, each with one that it takes."""

SWITCHES = (
    *("empty-first", "role-chunk", "textless", "counts-chunks", "knows-ids", "usage", "says-cached", "done", "keep-alive"),
    *("healthy", "resets", "tier-answers", "prefix-caching", "keepalives", "usage-choices"),
)
"""Options that are also there as ``--no-...``."""

FAULTS = ("status", "error", "close", "reset", "garbage", "truncate", "cut", "end", "http", "stall", "length", "die")


def test_every_option_and_fault_is_in_the_help() -> None:
    text = subprocess.run([*FAKE_SERVER, "--help"], capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"--([a-z][a-z-]*[a-z])", text))
    assert {*VALUES, *SWITCHES, *(f"no-{name}" for name in SWITCHES)} <= options
    assert [name for name in FAULTS if f"{name}:" not in text] == []


def test_every_option_is_taken() -> None:
    given = [f"--{name}={value}" for name, value in VALUES.items()] + [f"--{name}" for name in SWITCHES]
    with subprocess.Popen([*FAKE_SERVER, *given], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+\n", server.stdout.readline())
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
