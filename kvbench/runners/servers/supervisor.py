"""The supervisor: a small process that owns one server, and ends it with everything it started when kvbench is gone.

    python supervisor.py GRACE_S LOG LEFTOVERS COMMAND...

kvbench holds the write end of the supervisor's stdin. When that closes, for whatever reason (a stop, an exception, SIGKILL of kvbench), the
server and all its descendants get SIGTERM, GRACE_S seconds, and SIGKILL; so they do when the server's first process ends by itself. On
Linux orphans become the supervisor's children, so that none can hide in a session of its own; elsewhere the server's process group is what
is ended. Then the folder LEFTOVERS is removed, unless it is ''. The supervisor says on stdout ``started PID``, ``ended CODE`` (as
``subprocess`` has it: a signal is negative) or ``failed REASON``.

A script of the standard library only, so that it starts in milliseconds; it imports nothing of kvbench. kvbench runs it under a command
line that says none of this (``BOOTSTRAP`` of ``server.py``), and on Linux it calls itself ``supervisor``, so that a kill by name which ends
kvbench (``pkill -9 -f kvbench``, ``pkill -9 python``) spares the supervisor.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

SET_PARENT_DEATH_SIGNAL, SET_NAME, SET_CHILD_SUBREAPER = 1, 15, 36
"""Of Linux's ``prctl``."""

PAUSE_S = 0.02

ORPHAN_GRACE_S = 2.0
"""What the rest gets when the server's first process is gone: there is nobody left to wait for."""


def main(grace_s: float, log: str, leftovers: str, command: list[str]) -> None:
    """Start the command, wait until it ends or kvbench is gone, and leave nothing behind."""
    wanted = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    prctl = _prctl()
    prctl(SET_CHILD_SUBREAPER, 1)
    prctl(SET_NAME, b"supervisor")

    def before_exec() -> None:
        prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)

    try:
        with Path(log).open("ab") as output:
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, preexec_fn=before_exec
            )
    except OSError as error:
        _say(f"failed {error.filename or command[0]}: {error.strerror}")
        return
    _say(f"started {server.pid}")
    threading.Thread(target=_wait_for_kvbench, daemon=True).start()
    while server.poll() is None and signal.sigwait(wanted) == signal.SIGCHLD:
        pass
    if server.poll() is not None:
        _say(f"ended {server.returncode}")
        grace_s = min(grace_s, ORPHAN_GRACE_S)
    _end_all(server.pid, grace_s)
    if leftovers:
        shutil.rmtree(leftovers, ignore_errors=True)


def _wait_for_kvbench() -> None:
    """Turn the end of stdin into a signal for the main thread."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _end_all(group: int, grace_s: float) -> None:
    """SIGTERM to the group and to every descendant, and SIGKILL to what is left of them after the grace."""
    _signal(group, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while _left(group) and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
    while _left(group):
        _signal(group, signal.SIGKILL)
        time.sleep(PAUSE_S)


def _left(group: int) -> bool:
    """Whether a process of the group or a descendant is left; buries the dead ones first."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return bool(_descendants()) or _send(os.killpg, group, 0)


def _signal(group: int, number: int) -> None:
    _send(os.killpg, group, number)
    for pid in _descendants():
        _send(os.kill, pid, number)


def _send(kill: Callable[[int, int], None], target: int, number: int) -> bool:
    """Whether there was anybody to receive the signal."""
    try:
        kill(target, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _descendants() -> list[int]:
    """All processes below this one, from Linux's /proc; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _prctl() -> Callable[[int, int | bytes], object]:
    """Linux's ``prctl``; does nothing elsewhere."""
    if not sys.platform.startswith("linux"):
        return lambda _option, _value: None
    function: Callable[[int, int | bytes], object] = ctypes.CDLL(None).prctl
    return function


def _say(line: str) -> None:
    """Tell kvbench, if it is still there."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
