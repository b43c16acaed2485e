"""The servers of one arm: LMCache where it has one, then vLLM; started in this order, stopped in the other."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from kvbench.errors import RunFailed, UsageError
from kvbench.runners.http.admin_api import open_client
from kvbench.runners.servers.log_reason import find_trouble
from kvbench.runners.servers.server import ServerProcess, ServerSpec, free_ports
from kvbench.runners.vllm.installation import Installation
from kvbench.runners.vllm.lmcache import read_status
from kvbench.runners.vllm.options import ServerOptions
from kvbench.runners.vllm.tiers import SOCKETS, TIERS, Launch, Ports, lmcache_launch, redis_address, vllm_launch

LONGEST_FOLDER = 49
"""Of temporary files, in characters: with a folder in it and a socket's own name, 103 is the least that systems allow."""


class ArmServers:
    """Fresh servers for one arm and repeat, on loopback.

    ``with ArmServers("cpu", options, installation, folder) as servers: ...`` starts them; leaving the block stops them. Logs are
    ``server-ARM-rN.log`` and ``lmcache-ARM-rN.log`` in the folder. Nothing of them survives this process, whatever ends it.
    """

    def __init__(
        self,
        tier: str,
        options: ServerOptions,
        installation: Installation,
        folder: Path,
        repeat: int = 1,
        port: int | None = None,
        name: str | None = None,
    ) -> None:
        """Prepare; starts nothing.

        Args:
            tier: a name of :data:`kvbench.runners.vllm.tiers.TIERS`.
            options: the same for all arms.
            installation: what serves.
            folder: where the logs go; it exists.
            repeat: N of the logs' names.
            port: where vLLM listens, as ``--port`` says; ``None``: any free port.
            name: ARM of the logs' names; ``None``: the tier.

        Raises:
            UsageError: an option that the arm needs is missing or wrong.
            RunFailed: the interpreter or the device cannot serve this arm, or the port is taken.
        """
        _check_device(tier, installation)
        level = TIERS[tier]
        if port is not None:
            _require_free(port)
        self.tier = tier
        self._options = options
        self._stack = ExitStack()
        self._vllm: ServerProcess | None = None
        self._lmcache: ServerProcess | None = None
        free = free_ports(3)
        ports = Ports(port or free[0], free[1], free[2])
        self.url = f"http://127.0.0.1:{ports.vllm}"
        """vLLM's address, without a slash at its end."""
        self.headers = {} if options.api_key is None else {"Authorization": f"Bearer {options.api_key}"}
        """What vLLM wants to see with every request: the key that it was told to ask for."""
        self.lmcache_url = f"http://127.0.0.1:{ports.lmcache_http}" if level.server else None
        """The address of LMCache's status, metrics and resets; ``None`` on an arm without an LMCache server."""
        self._log, self._lmcache_log = (folder / f"{kind}-{name or tier}-r{repeat}.log" for kind in ("server", "lmcache"))
        self.vllm_launch: Launch = vllm_launch(tier, options, installation, ports)
        self._files = _own_folder(options.disk) if tier == "disk" else None
        if self._files is not None:
            self._options = options = replace(options, disk=self._files)
            self._stack.callback(shutil.rmtree, self._files, ignore_errors=True)
        self.lmcache_launch: Launch | None = lmcache_launch(tier, options, installation, ports)

    @property
    def logs(self) -> list[Path]:
        """The logs of the servers, in the order in which these start."""
        return [self._log] if self.lmcache_launch is None else [self._lmcache_log, self._log]

    def start(self) -> None:
        """Start the servers; returns when they answer, and vLLM is known to LMCache. ``RunFailed``: one did not; all are stopped."""
        try:
            if self.tier == "redis":
                _require_listener(self._options.redis)
            companions: tuple[Path, ...] = ()
            if self.lmcache_launch is not None:
                companions = (self._lmcache_log,)
                self._lmcache = self._run("LMCache server", self.lmcache_launch, f"{self.lmcache_url}/healthcheck", self._lmcache_log)
            self._vllm = self._run("vLLM server", self.vllm_launch, f"{self.url}/health", self._log, companions)
            if self.lmcache_url is not None:
                with open_client() as client:
                    if read_status(client, self.lmcache_url).workers == 0:
                        logs = f"{self._log}, {self._lmcache_log}"
                        raise RunFailed(f"vLLM came up without registering with LMCache, so the tier can never hit (logs: {logs})")
        except BaseException:
            self.stop()
            raise

    def check_alive(self) -> None:
        """Do nothing while the servers run; ``RunFailed`` when one has ended, with the lines of its log that tell why."""
        for server in (self._lmcache, self._vllm):
            if server is not None:
                server.check_alive()

    def why_dead(self) -> str | None:
        """Why the servers cannot answer any more; ``None`` while they run."""
        try:
            self.check_alive()
        except RunFailed as error:
            return str(error)
        return None

    def tier_trouble(self) -> str | None:
        """What the logs of healthy servers say against the tier; ``None`` where they say nothing. Read it when a tier never hits."""
        return find_trouble(self._log, self._lmcache_log)

    def stop(self) -> None:
        """Stop vLLM, then LMCache, with all they started; removes the files of tier ``disk``. Safe to call twice."""
        self._stack.close()

    def describe(self) -> dict[str, Any]:
        """Command lines and environments for the manifest, secrets masked, and the names of the logs."""
        servers = {"vllm": (self.vllm_launch, self._log)}
        if self.lmcache_launch is not None:
            servers["lmcache"] = (self.lmcache_launch, self._lmcache_log)
        return {name: {**launch.describe(), "log": log.name} for name, (launch, log) in servers.items()}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, name: str, launch: Launch, health: str, log: Path, companions: tuple[Path, ...] = ()) -> ServerProcess:
        environment = launch.environment
        if launch is self.lmcache_launch:
            leftovers = self._files
        elif (leftovers := _socket_folder(environment)) is not None:
            self._stack.callback(shutil.rmtree, leftovers, ignore_errors=True)
            environment = {**environment, SOCKETS: str(leftovers)}
        spec = ServerSpec(name, launch.command, environment, health, log, companions, leftovers)
        server = self._stack.enter_context(ServerProcess(spec, self._options.grace_s))
        server.await_ready(self._options.startup_s)
        return server


def check_arm(tier: str, options: ServerOptions, installation: Installation) -> None:
    """Find out what would keep the servers of an arm from starting, as far as that can be known before; starts nothing.

    Its options, the device, the folder of tier ``disk`` (which is made) and the address of tier ``redis``; not the size of its tier.

    Raises:
        UsageError: an option is missing or wrong.
        RunFailed: the interpreter or the device cannot serve it, or nobody listens at the address.
    """
    _check_device(tier, installation)
    sized, ports = replace(options, host_gib=options.host_gib or 1.0), Ports(1, 2, 3)
    vllm_launch(tier, sized, installation, ports)
    lmcache_launch(tier, sized, installation, ports)
    if tier == "disk" and (folder := _own_folder(options.disk)) is not None:
        folder.rmdir()
    if tier == "redis":
        _require_listener(options.redis)


def _check_device(tier: str, installation: Installation) -> None:
    level = TIERS[tier]
    installation.require(lmcache=level.lmcache)
    if level.device is not None and installation.device != level.device:
        raise RunFailed(f"--tier {tier}: {level.describes} needs a GPU, and vLLM {installation.vllm} here runs on the CPU")


def _own_folder(parent: Path | None) -> Path | None:
    """A new folder, as LMCache finds again whatever an earlier server left in its own."""
    if parent is None:
        return None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="kvbench-", dir=parent.absolute()))
    except OSError as error:
        raise UsageError(f"--disk {parent}: cannot be written ({error.strerror}); name a folder you may write to") from None


def _socket_folder(environment: Mapping[str, str]) -> Path | None:
    """A new folder for vLLM's sockets; ``None`` where one is named, or a socket's path would be longer than systems allow."""
    if SOCKETS in environment or SOCKETS in os.environ or len(tempfile.gettempdir()) > LONGEST_FOLDER:
        return None
    try:
        return Path(tempfile.mkdtemp(prefix="kvbench-"))
    except OSError:  # vLLM says better than we could what it cannot write
        return None


def _require_free(port: int) -> None:
    """Refuse a port that is taken: whoever answers there would be mistaken for the server that is being started."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: connections that are over hold no port
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise RunFailed(f"--port {port}: nobody can listen there ({error.strerror}); name a free one with --port N") from None


def _require_listener(redis: str | None) -> None:
    """Refuse a Redis address where nobody listens; LMCache would only say so in its log."""
    address = redis_address(redis)
    try:
        socket.create_connection((address.host, address.port), timeout=5).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunFailed(
            f"--redis {address.host}:{address.port}: nobody listens there ({reason}); start redis-server, or correct it"
        ) from None
