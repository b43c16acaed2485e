"""A server's life: up, found dead at once, stopped with all it started, and never longer alive than kvbench."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from kvbench.errors import RunFailed
from kvbench.runners.servers.server import ServerProcess, ServerSpec, free_ports
from tests.runners.servers.lives import HERE, MARK, alive, all_gone, scripted

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are found through /proc and prctl")


def mark_of(spec: ServerSpec) -> str:
    return spec.environment[MARK]


def watch(server: ServerProcess) -> None:
    while True:
        server.check_alive()


def test_a_server_answers_and_its_log_is_whole(tmp_path: Path) -> None:
    spec = scripted("ready", tmp_path)
    with ServerProcess(spec, grace_s=5) as server:
        server.await_ready(20)
        assert server.exit_code is None
        assert [process.pid for process in alive(mark_of(spec))].count(server.pid) == 1
        assert os.getpgid(server.pid) == server.pid != os.getpgid(0)
        server.check_alive()
    assert all_gone(mark_of(spec), 0)
    assert spec.log.read_text().startswith("hello from the server\n")
    server.stop()
    assert server.exit_code is None


def test_a_server_that_takes_its_time_is_awaited(tmp_path: Path) -> None:
    spec = scripted("late", tmp_path)
    with ServerProcess(spec, grace_s=5) as server:
        server.await_ready(20)
        assert httpx.get(spec.health_url).is_success


def test_an_early_death_is_noticed_at_once_and_explained(tmp_path: Path) -> None:
    spec = scripted("dies", tmp_path)
    begin = time.monotonic()
    with ServerProcess(spec, grace_s=5) as server, pytest.raises(RunFailed) as caught:
        server.await_ready(120)
    assert time.monotonic() - begin < 20
    assert str(caught.value) == (
        "the scripted server did not start: it ended with code 3: ValueError: No common block size for 16 (CPU_ATTN: [MultipleOf(32)]).; "
        f"on the CPU the block size is a multiple of 32: --block-size 32 (log: {spec.log})"
    )


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    spec = scripted("hangs", tmp_path)
    with ServerProcess(spec, grace_s=5) as server:
        while not spec.log.read_text():
            server.check_alive()
        with pytest.raises(RunFailed, match=r"did not answer within 0\.5 s \(--startup-timeout\): hello from"):
            server.await_ready(0.5)
    assert all_gone(mark_of(spec), 0)


def test_a_death_later_on_is_named_with_its_signal(tmp_path: Path) -> None:
    with ServerProcess(scripted("ready", tmp_path), grace_s=5) as server:
        server.await_ready(20)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(RunFailed, match="the scripted server was ended by signal 9: hello from the server"):
            watch(server)


@pytest.mark.parametrize(("behaviour", "processes"), [("stubborn", 2), ("stray", 3), ("family", 4)])
@linux
def test_who_does_not_go_on_sigterm_is_killed_after_the_grace(tmp_path: Path, behaviour: str, processes: int) -> None:
    spec = scripted(behaviour, tmp_path)
    with ServerProcess(spec, grace_s=0.3) as server:
        server.await_ready(20)
        assert len(alive(mark_of(spec))) == processes  # the supervisor has the mark as well
        begin = time.monotonic()
    assert time.monotonic() - begin >= 0.3
    assert all_gone(mark_of(spec), 0)


@linux
def test_the_family_of_a_server_that_died_is_ended_too(tmp_path: Path) -> None:
    spec = scripted("abandons", tmp_path)
    with ServerProcess(spec, grace_s=0.2) as server, pytest.raises(RunFailed, match="ended with code 5"):
        server.await_ready(20)
    assert all_gone(mark_of(spec), 0)


@linux
def test_a_supervisor_that_is_killed_takes_the_server_along(tmp_path: Path) -> None:
    spec = scripted("ready", tmp_path)
    with ServerProcess(spec, grace_s=5) as server:
        server.await_ready(20)
        supervisor = next(process for process in alive(mark_of(spec)) if process.pid != server.pid)
        supervisor.kill()
        assert all_gone(mark_of(spec))
        with pytest.raises(RunFailed, match="was ended by signal 9"):
            watch(server)


@linux
def test_the_family_of_a_server_whose_supervisor_is_killed_is_ended_too(tmp_path: Path) -> None:
    spec = scripted("family", tmp_path)
    with ServerProcess(spec, grace_s=5) as server:
        server.await_ready(20)
        supervisor = psutil.Process(server.pid).parent()
        assert supervisor is not None
        supervisor.kill()
        with pytest.raises(RunFailed, match="was ended by signal 9"):
            watch(server)
        assert all_gone(mark_of(spec), 0)


def test_an_exception_stops_the_server(tmp_path: Path) -> None:
    spec = scripted("ready", tmp_path)
    with pytest.raises(KeyboardInterrupt), ServerProcess(spec, grace_s=5):
        raise KeyboardInterrupt
    assert all_gone(mark_of(spec), 0)


def test_a_command_that_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    spec = ServerSpec("vLLM server", ["/nowhere/python"], {}, "http://127.0.0.1:9/", tmp_path / "log")
    with pytest.raises(RunFailed, match="the vLLM server cannot be started: /nowhere/python: No such file or directory"):
        ServerProcess(spec)


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    spec = ServerSpec("vLLM server", [sys.executable], {}, "http://127.0.0.1:9/", tmp_path / "no" / "log")
    with pytest.raises(RunFailed, match="log: cannot be written"):
        ServerProcess(spec)


def test_its_own_folder_is_removed_when_it_has_ended(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "kv").write_bytes(b"x")
    with ServerProcess(scripted("ready", tmp_path, leftovers=files), grace_s=5):
        assert files.exists()
    assert not files.exists()


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


OWNER = """
import sys, time
from pathlib import Path
from lives import scripted
from kvbench.runners.servers.server import ServerProcess
folder, mark, files = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
files.mkdir()
print("starting", flush=True)
with ServerProcess(scripted("family", folder, mark, leftovers=files), grace_s=0.2) as server:
    server.await_ready(60)
    print("ready", flush=True)
    time.sleep(600)
"""


def own_a_server(folder: Path, mark: str) -> subprocess.Popen[str]:
    """A process that starts a server with a family and then waits."""
    command = [sys.executable, "-c", OWNER, str(folder), mark, str(folder / "files")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(HERE)}, start_new_session=True)


@pytest.mark.parametrize("attempt", range(10))
@linux
def test_nothing_survives_sigkill_of_kvbench_at_a_random_moment(tmp_path: Path, attempt: int) -> None:
    mark = f"sigkill-{os.getpid()}-{attempt}"
    owner = own_a_server(tmp_path, mark)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "starting\n"
    if attempt % 2:
        assert owner.stdout.readline() == "ready\n"
        assert len(alive(mark)) == 4
    else:
        time.sleep(random.Random(attempt).uniform(0, 0.4))  # the random moment
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert all_gone(mark)
    if attempt % 2:
        assert not (tmp_path / "files").exists()


def has_words(process: psutil.Process) -> bool:
    """``pkill -f kvbench``; wherever the interpreter is."""
    return "kvbench" in " ".join(process.cmdline()[1:])


def has_name(process: psutil.Process) -> bool:
    """``pkill python``, of servers whose processes have names of their own, as vLLM's do."""
    return "python" in process.name() and "scripted_server" not in " ".join(process.cmdline())


@pytest.mark.parametrize("is_named", [has_words, has_name])
@linux
def test_a_kill_by_name_spares_the_supervisor_which_ends_the_rest(tmp_path: Path, is_named: Callable[[psutil.Process], bool]) -> None:
    mark = f"by-name-{os.getpid()}-{is_named.__name__}"
    owner = own_a_server(tmp_path, mark)
    assert owner.stdout is not None
    assert owner.stdout.readline() + owner.stdout.readline() == "starting\nready\n"
    everybody = [psutil.Process(owner.pid), *alive(mark)]
    named = [process for process in everybody if is_named(process)]
    assert owner.pid in [process.pid for process in named]
    for process in named:
        process.kill()
    owner.wait()
    owner.stdout.close()
    assert all_gone(mark)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@linux
def test_nothing_survives_another_end_of_kvbench(tmp_path: Path, number: signal.Signals) -> None:
    mark = f"{number.name}-{os.getpid()}"
    owner = own_a_server(tmp_path, mark)
    assert owner.stdout is not None
    assert owner.stdout.readline() + owner.stdout.readline() == "starting\nready\n"
    os.killpg(owner.pid, number)  # as a terminal does
    owner.wait()
    owner.stdout.close()
    assert all_gone(mark)
