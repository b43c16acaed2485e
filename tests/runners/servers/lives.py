"""Servers for tests, and who of them is still alive: found by a mark in their environment, which every descendant inherits."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from uuid import uuid4

import psutil

from kvbench.runners.servers.server import ServerSpec, free_ports

HERE = Path(__file__).parent
SCRIPTS = HERE.parent / "vllm"
"""Where the interpreters are that stand in for vLLM's."""

MARK = "KVBENCH_TEST_MARK"


def scripted(behaviour: str, folder: Path, mark: str = "", leftovers: Path | None = None) -> ServerSpec:
    """What to start for a server that behaves so; its log is ``server.log`` in the folder."""
    port = free_ports(1)[0]
    command = [sys.executable, str(HERE / "scripted_server.py"), behaviour, str(port)]
    log = folder / "server.log"
    return ServerSpec("scripted server", command, {MARK: mark or uuid4().hex}, f"http://127.0.0.1:{port}/", log, leftovers=leftovers)


def alive(mark: str) -> list[psutil.Process]:
    """Every process with this mark that has not ended."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def all_gone(mark: str, within_s: float = 20) -> bool:
    """Whether nobody with this mark is left, at the latest after that time."""
    deadline = time.monotonic() + within_s
    while alive(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def fake_python(folder: Path, script: str = "fake_python.py") -> Path:
    """An interpreter as that script describes it."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SCRIPTS / script}" "$@"\n')
    python.chmod(0o755)
    return python
