"""One server process: started under a supervisor, awaited, watched, stopped."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx
import psutil

from kvbench.errors import RunFailed
from kvbench.runners.servers.log_reason import explain

SUPERVISOR = Path(__file__).with_name("supervisor.py")

BOOTSTRAP = """
import json, runpy, sys
if job := sys.stdin.buffer.readline():
    sys.argv = json.loads(job)
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The supervisor's command line. Its path and arguments come by stdin: else ``pkill -9 -f kvbench`` would kill both at once."""

POLL_S = 0.1
"""Between two questions whether the server answers. Its death is noticed in between."""

SUPERVISOR_MARGIN_S = 10.0
"""What a supervisor may take beyond the grace before it is given up."""

BURIAL_S = 1.0
"""How long to wait for processes after SIGKILL. Where orphans are not reaped, they are never gone."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """What to start.

    Attributes:
        name: for messages, such as ``vLLM server``.
        command: the exact command line.
        environment: what is set over the environment that kvbench runs in.
        health_url: answers 200 when the server is ready.
        log: where stdout and stderr go, whole; an existing file is added to.
        companions: logs that may hold the reason when this server does not start.
        leftovers: a folder of its own that is removed when it has ended, even where kvbench was killed.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    health_url: str
    log: Path
    companions: tuple[Path, ...] = ()
    leftovers: Path | None = None


class ServerProcess:
    """A running server that ends with kvbench, whatever ends kvbench.

    ``with ServerProcess(spec, grace_s) as server: server.await_ready(startup_s)``. Leaving the block stops it with all that it started.

    Where only the supervisor is killed, the server's first process dies with it (on Linux), and :meth:`stop` kills its process group and
    what had descended from it when it answered; what has moved into a session of its own since then remains. Where the supervisor is killed
    together with kvbench (``pkill -9 -f python``, or by another name that the interpreter's own path holds), all but the first process may
    remain.
    """

    def __init__(self, spec: ServerSpec, grace_s: float = 15.0) -> None:
        """Start the process; returns before the server is ready. ``RunFailed``: it cannot be executed, or its log not written."""
        self.spec = spec
        self._grace_s = grace_s
        self._said = b""
        self._family: set[psutil.Process] = set()
        try:
            spec.log.touch()
        except OSError as error:
            raise RunFailed(f"{spec.log}: cannot be written ({error.strerror})") from None
        self._supervisor = subprocess.Popen(
            [str(Path(sys.executable).resolve()), "-I", "-S", "-c", BOOTSTRAP],  # resolved: the path of a venv often holds a project's name
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **spec.environment},
            start_new_session=True,  # Ctrl-C is for kvbench, which then stops the servers in order
        )
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._stdin, self._stdout = self._supervisor.stdin, self._supervisor.stdout
        job = [str(SUPERVISOR), str(grace_s), str(spec.log), str(spec.leftovers or ""), *spec.command]
        with suppress(BrokenPipeError):  # a supervisor that has died is noticed by its silence
            self._stdin.write(json.dumps(job).encode() + b"\n")
            self._stdin.flush()
        self.pid = self._first_word()
        """Process id of the server, which is its process group's too."""

    @property
    def exit_code(self) -> int | None:
        """``None`` while the server's first process runs; a signal is negative."""
        return self._heard("ended")

    def await_ready(self, startup_s: float) -> None:
        """Return when the server answers.

        Raises:
            RunFailed: it ended, which is noticed at once, or did not answer in time; with the lines of the log that tell why.
        """
        deadline = time.monotonic() + startup_s
        with httpx.Client(timeout=2, trust_env=False) as client:
            while time.monotonic() < deadline:
                self.check_alive("did not start: it")
                with suppress(httpx.TransportError):
                    if client.get(self.spec.health_url).is_success:
                        self._meet_family()
                        return
                self._listen(POLL_S)
        raise explain(
            f"the {self.spec.name} did not answer within {startup_s:g} s (--startup-timeout)", self.spec.log, self.spec.companions
        )

    def check_alive(self, context: str = "") -> None:
        """Do nothing while the server runs; ``RunFailed`` when it has ended, with the lines of the log that tell why."""
        code = self.exit_code
        if code is not None:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            self.stop()
            raise explain(f"the {self.spec.name} {context} {how}".replace("  ", " "), self.spec.log, self.spec.companions)

    def stop(self) -> None:
        """SIGTERM to the server and all that it started, SIGKILL after the grace; returns when none is left. Safe to call twice."""
        self._meet_family()
        with suppress(BrokenPipeError):
            self._stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(self._grace_s + SUPERVISOR_MARGIN_S)
        if self._supervisor.poll() is None:
            self._supervisor.kill()
            self._supervisor.wait()
        if self._supervisor.returncode and hasattr(self, "pid"):  # killed, so that it could not do its work
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._kill_family()
        self._stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _meet_family(self) -> None:
        """Remember who descends from the supervisor: when it has been killed, those in other sessions cannot be found any more."""
        if self._supervisor.poll() is None:
            with suppress(psutil.Error):
                self._family.update(psutil.Process(self._supervisor.pid).children(recursive=True))

    def _kill_family(self) -> None:
        """SIGKILL to everybody remembered, and to what they have started since."""
        for member in list(self._family):
            with suppress(psutil.Error):
                self._family.update(member.children(recursive=True))
        for member in self._family:
            with suppress(psutil.Error):
                member.kill()
        psutil.wait_procs(self._family, BURIAL_S)
        self._family.clear()

    def _first_word(self) -> int:
        while not self._said.endswith(b"\n") and self._listen(None):
            pass
        pid = self._heard("started")
        if pid is None:
            reason = self._said.decode(errors="replace").removeprefix("failed ").strip()
            self.stop()
            raise RunFailed(f"the {self.spec.name} cannot be started: {reason or 'its supervisor ended'}")
        return pid

    def _heard(self, word: str) -> int | None:
        """The number the supervisor said after a word, if it has said it."""
        self._listen(0)
        for line in self._said.decode(errors="replace").splitlines():
            if line.startswith(f"{word} "):
                return int(line.removeprefix(f"{word} "))
        # A supervisor that is killed takes its server along.
        return -signal.SIGKILL if word == "ended" and self._supervisor.poll() else None

    def _listen(self, timeout_s: float | None) -> bool:
        """Take in what the supervisor says within the time; ``False`` when it says nothing, or is gone."""
        if self._stdout.closed or not select.select([self._stdout], [], [], timeout_s)[0]:
            return False
        said = os.read(self._stdout.fileno(), 4096)
        self._said += said
        return bool(said)


def free_ports(count: int) -> list[int]:
    """So many different loopback ports on which nobody listens at this moment."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
