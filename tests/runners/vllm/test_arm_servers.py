"""The servers of an arm: in order, on free ports, described without secrets, stopped together."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from kvbench.errors import KvbenchError, RunFailed, UsageError
from kvbench.runners.servers.server import free_ports
from kvbench.runners.vllm.arm_servers import ArmServers
from kvbench.runners.vllm.installation import Installation, inspect
from kvbench.runners.vllm.options import ServerOptions
from kvbench.runners.vllm.tiers import SOCKETS
from tests.runners.servers.lives import MARK, all_gone, fake_python


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"arm-{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def options(tmp_path: Path, mark: str) -> ServerOptions:
    (tmp_path / "model").mkdir()
    return ServerOptions(
        model=str(tmp_path / "model"),
        host_gib=1,
        disk=tmp_path / "disk",
        environment={MARK: mark, "HF_TOKEN": "geheim"},
        startup_s=20,
        grace_s=2,
    )


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return inspect(fake_python(tmp_path))


def test_lmcache_comes_first_and_vllm_is_told_where_it_is(
    tmp_path: Path, options: ServerOptions, installation: Installation, mark: str
) -> None:
    with ArmServers("cpu", options, installation, tmp_path, repeat=3) as servers:
        assert httpx.get(f"{servers.url}/health", trust_env=False).is_success
        assert servers.lmcache_url is not None
        assert httpx.get(f"{servers.lmcache_url}/status", trust_env=False).is_success
        servers.check_alive()
        described = servers.describe()
        assert psutil.pid_exists(pid_of(servers))
    assert all_gone(mark, 0)
    vllm, lmcache = (tmp_path / f"{name}-cpu-r3.log" for name in ("server", "lmcache"))
    assert lmcache.stat().st_mtime <= vllm.stat().st_mtime
    port = next(word for word in described["lmcache"]["command"] if word.startswith("--port="))
    assert f'"lmcache.mp.port":{port.removeprefix("--port=")}' in vllm.read_text()
    assert (described["vllm"]["log"], described["lmcache"]["log"]) == (vllm.name, lmcache.name)
    assert described["vllm"]["environment"]["HF_TOKEN"] == "***"
    assert "geheim" not in json.dumps(described)


def test_an_arm_without_a_tier_has_one_server(tmp_path: Path, options: ServerOptions, installation: Installation, mark: str) -> None:
    with ArmServers("none", options, installation, tmp_path) as servers:
        assert servers.lmcache_url is None
        assert list(servers.describe()) == ["vllm"]
    servers.stop()
    assert all_gone(mark, 0)
    assert sorted(file.name for file in tmp_path.glob("*.log")) == ["server-none-r1.log"]


@pytest.mark.parametrize(("dies", "words"), [("vllm", "the vLLM server did not start"), ("lmcache", "the LMCache server did not start")])
def test_when_one_does_not_start_none_is_left(
    tmp_path: Path, options: ServerOptions, installation: Installation, mark: str, dies: str, words: str
) -> None:
    options = replace(options, environment={**options.environment, "FAKE_DIES": dies})
    with pytest.raises(RunFailed, match=f"{words}: it ended with code 1: OSError: .Errno 98. Address already in use; another process"):
        ArmServers("disk", options, installation, tmp_path).start()
    assert all_gone(mark, 0)
    assert list((tmp_path / "disk").iterdir()) == []


def test_a_vllm_that_does_not_register_with_lmcache_is_refused(
    tmp_path: Path, options: ServerOptions, installation: Installation, mark: str
) -> None:
    options = replace(options, environment={**options.environment, "FAKE_WORKERS": "0"})
    with pytest.raises(RunFailed, match="without registering with LMCache, so the tier can never hit"):
        ArmServers("cpu", options, installation, tmp_path).start()
    assert all_gone(mark, 0)


def test_a_disk_tier_gets_a_new_folder_each_time_which_is_removed(
    tmp_path: Path, options: ServerOptions, installation: Installation
) -> None:
    seen = []
    for repeat in (1, 2):
        with ArmServers("disk", options, installation, tmp_path, repeat) as servers:
            (folder,) = (tmp_path / "disk").iterdir()
            (folder / "chunk.data").write_bytes(b"kv")
            assert any(str(folder) in word for word in servers.describe()["lmcache"]["command"])
            seen.append(folder)
        assert list((tmp_path / "disk").iterdir()) == []
    assert seen[0] != seen[1]


def test_its_folder_is_not_made_for_servers_that_cannot_be_started(
    tmp_path: Path, options: ServerOptions, installation: Installation
) -> None:
    with pytest.raises(UsageError, match="LMCache refuses a name with @"):
        ArmServers("disk", replace(options, model="a@b"), installation, tmp_path)
    assert not (tmp_path / "disk").exists()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, as short as where sockets go."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.delenv(SOCKETS, raising=False)
        yield Path(folder)


def pid_of(servers: ArmServers) -> int:
    assert servers._vllm is not None
    return servers._vllm.pid


def sockets_of(servers: ArmServers) -> str | None:
    """Where vLLM was told to have its sockets."""
    return psutil.Process(pid_of(servers)).environ().get(SOCKETS)


def test_vllms_sockets_have_a_folder_of_their_own_which_is_removed(
    tmp_path: Path, options: ServerOptions, installation: Installation, temporary: Path
) -> None:
    with ArmServers("cpu", options, installation, tmp_path) as servers:
        (folder,) = temporary.iterdir()
        assert sockets_of(servers) == str(folder)
        (folder / "f8dc4b8c-16cd-469c-a1fd-9294c28a86f4").touch()
        assert str(folder) not in json.dumps(servers.describe())  # nobody can start the same with a folder that is gone
    assert list(temporary.iterdir()) == []


def test_vllms_sockets_are_where_the_user_wants_them_or_where_a_path_is_short_enough(
    tmp_path: Path, options: ServerOptions, installation: Installation, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ArmServers("none", replace(options, environment={SOCKETS: "/own"}), installation, tmp_path) as servers:
        assert sockets_of(servers) == "/own"
    monkeypatch.setattr(tempfile, "tempdir", f"/{'t' * 60}")
    with ArmServers("none", options, installation, tmp_path) as servers:
        assert sockets_of(servers) is None
    monkeypatch.setenv(SOCKETS, "/inherited")
    with ArmServers("none", options, installation, tmp_path) as servers:
        assert sockets_of(servers) == "/inherited"
    assert list(temporary.iterdir()) == []


def test_a_redis_tier_needs_somebody_who_listens(tmp_path: Path, options: ServerOptions, installation: Installation) -> None:
    options = replace(options, redis="redis://:geheim@127.0.0.1:9")
    with pytest.raises(RunFailed, match=r"--redis 127\.0\.0\.1:9: nobody listens there \(Connection refused\); start redis-server"):
        ArmServers("redis", options, installation, tmp_path).start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        options = replace(options, redis=f"redis://:geheim@127.0.0.1:{listener.getsockname()[1]}")
        with ArmServers("redis", options, installation, tmp_path) as servers:
            assert servers.lmcache_launch is not None
            assert servers.lmcache_launch.environment["LMCACHE_RESP_PASSWORD"] == "geheim"
            assert servers.describe()["lmcache"]["environment"]["LMCACHE_RESP_PASSWORD"] == "***"


def test_a_port_can_be_chosen(tmp_path: Path, options: ServerOptions, installation: Installation) -> None:
    port = free_ports(1)[0]
    assert ArmServers("none", options, installation, tmp_path, port=port).url == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_on_which_somebody_listens_is_refused(
    tmp_path: Path, options: ServerOptions, installation: Installation, address: str
) -> None:
    with socket.create_server((address, 0)) as listener:
        port = listener.getsockname()[1]
        words = rf"--port {port}: nobody can listen there \(Address already in use\); name a free one with --port N"
        with pytest.raises(RunFailed, match=words):
            ArmServers("disk", options, installation, tmp_path, port=port)
    assert not (tmp_path / "disk").exists()


def test_connections_that_are_over_hold_no_port(tmp_path: Path, options: ServerOptions, installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        port = listener.getsockname()[1]
        listener.accept()[0].close()  # who closes first keeps the port in TIME_WAIT
        assert client.recv(1) == b""
    ArmServers("none", options, installation, tmp_path, port=port)


@pytest.mark.parametrize(
    ("tier", "changes", "kind", "words"),
    [
        ("native", {}, RunFailed, "--tier native: .* needs a GPU, and vLLM 0.32.0 here runs on the CPU"),
        ("cpu", {"lmcache": None}, RunFailed, "has no LMCache"),
        ("none", {"vllm": None, "device": None}, RunFailed, "has no vLLM: --vllm-python PATH"),
        ("none", {"device": None}, RunFailed, "is built for a GPU, and there is none"),
    ],
)
def test_what_cannot_run_here_is_refused_before_anything_starts(
    tmp_path: Path,
    options: ServerOptions,
    installation: Installation,
    tier: str,
    changes: dict[str, Any],
    kind: type[KvbenchError],
    words: str,
) -> None:
    with pytest.raises(kind, match=words):
        ArmServers(tier, options, replace(installation, **changes), tmp_path)
    assert not list(tmp_path.glob("*.log"))


def test_a_folder_that_cannot_be_made_is_wrong_use(tmp_path: Path, options: ServerOptions, installation: Installation) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--disk .*: cannot be written"):
        ArmServers("disk", replace(options, disk=tmp_path / "file" / "disk"), installation, tmp_path)
