"""The points of a sweep on a Ray cluster: one a GPU, or one a node where there are none; their run folders come back to this disk.

A worker runs a point as it would run here, in a folder of its own machine, and sends that folder as one archive: nodes need no file
system in common. What a point does is Ray's business only while it runs: nothing of it is kept on the node.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import socket
import tarfile
import tempfile
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.config.run import RunConfig
from kvbench.drawing.numbers import numbered
from kvbench.errors import Interrupted, KvbenchError, RunFailed, UsageError
from kvbench.runs.sweep_folder import Point, SweepFolder
from kvbench.runs.version import __version__
from kvbench.sweeps.loop import Measure, Tell, interrupted, left_to_do, name_of, reason_of
from kvbench.sweeps.points import Planned

LOCAL = "local"
"""The address that means a cluster of this machine, started here and stopped at the end."""

ATTEMPTS = 3
"""How often a point is begun whose worker is lost each time."""

_CONNECT_S = 5.0
_THREADS = "OMP_NUM_THREADS"
_Nodes = dict[str, float]
"""Nodes of a cluster by their ids: how many CPUs Ray has there."""

_STOP_S = 20.0
"""How long workers have to end what they run once the user stopped the sweep."""

_LOCAL_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's own switch for what it does on macOS and Windows anyway: to be one node, on the loopback interface only.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True, slots=True)
class Sent:
    """What a worker sends back: its run folder as a tar archive, if it made one, and why the point could not be done, if it could not.

    ``path``: where the folder was, which messages name.
    """

    archive: bytes | None
    error: str | None
    path: str = ""


@dataclass(frozen=True, slots=True)
class Driver:
    """Where the command was given. ``directory``: what paths are relative to, on a machine that has it; ``threads``: of OpenMP, if said."""

    version: str
    directory: str
    threads: str | None


@dataclass(slots=True)
class _Task:
    """A point that runs somewhere. ``node``: the one that it has to itself."""

    point: Point
    config: RunConfig
    attempt: int = 1
    node: str | None = None


def run_points(planned: Planned, folder: SweepFolder, measure: Measure, tell: Tell, address: str) -> None:
    """Measure each point that is left, as many at once as the cluster has places. One whose worker is lost is run again.

    ``measure``: is sent to the workers, so it can be pickled, and imports what it needs there. ``address``: of an existing cluster, as Ray
    writes it (``HOST:PORT``, ``ray://HOST:PORT``, ``auto``); ``local``: start one here.

    Raises ``Interrupted``: the user stopped it; ``RunFailed``: Ray is not installed, or no cluster answers; ``UsageError``: a node has
    another version of kvbench, or none.
    """
    waiting = deque(_Task(point, config) for point, config in left_to_do(planned, folder, tell))
    if not waiting:
        return
    with _cluster(address) as ray:
        nodes = _checked_nodes(ray)
        tell(f"Ray: {numbered(gpus, 'GPU') if (gpus := _gpus(ray)) else numbered(len(nodes), 'node')}, a point on each")
        running: dict[Any, _Task] = {}
        try:
            _work(ray, nodes, waiting, running, folder, measure, tell)
        except KeyboardInterrupt:
            _stop(ray, list(running))
            raise interrupted(folder, f"interrupted; {len(running)} points in progress are lost") from None


def _work(
    ray: Any, nodes: _Nodes, waiting: deque[_Task], running: dict[Any, _Task], folder: SweepFolder, measure: Measure, tell: Tell
) -> None:
    """The loop: give work to every free place, take what comes first."""
    token = uuid.uuid4().hex[:12]
    while waiting or running:
        while waiting and (free := _free(ray, nodes, running)):
            task = waiting.popleft()
            task.node = free[0]
            running[_submit(ray, task, nodes, measure, token)] = task
            tell(f"{name_of(folder, task.point)} ...")
        if not running:
            raise RunFailed("--ray: no node of the cluster is alive any more; the same command goes on with the points that are left")
        (done, *_), _ = ray.wait(list(running), num_returns=1)
        task = running.pop(done)
        try:
            sent: Sent = ray.get(done)
        except ray.exceptions.RayError as error:
            if task.node is not None and isinstance(error, (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError)):
                nodes.pop(task.node, None)  # Ray goes on to list it for a while
            elif not isinstance(error, (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError)):
                task.attempt = ATTEMPTS  # it would come again
            if task.attempt < ATTEMPTS:
                task.attempt += 1
                waiting.append(task)
                tell(f"{name_of(folder, task.point)}: its worker was lost; run again ({task.attempt} of {ATTEMPTS})")
                continue
            sent = Sent(None, f"Ray: {_first_line(error)}")
        _gather(task.point, sent, folder)
        tell(f"{name_of(folder, task.point)}: {sent.error or 'done'}")


def _free(ray: Any, nodes: _Nodes, running: dict[Any, _Task]) -> list[str | None]:
    """Where a point may start: nodes that have none of ours; ``None``: Ray knows where, as it counts the GPUs."""
    if _gpus(ray):
        return [None]
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    busy = {task.node for task in running.values()}
    return [node for node in nodes if node in alive and node not in busy]


def _submit(ray: Any, task: _Task, nodes: _Nodes, measure: Measure, token: str) -> Any:
    if task.node is None:
        options: dict[str, Any] = {"num_gpus": 1}
    else:
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(task.node, soft=False)
        options = {"num_cpus": nodes[task.node], "scheduling_strategy": affinity}
    # Ray's own retries know no limit where memory is short.
    remote = ray.remote(run_here).options(max_retries=0, name=f"kvbench {task.point.folder}", **options)
    here = Driver(__version__, str(Path.cwd()), os.environ.get(_THREADS))
    return remote.remote(task.config, measure, f"kvbench-{token}/{task.point.folder}", here)


def run_here(config: RunConfig, measure: Measure, name: str, driver: Driver) -> Sent:
    """What a worker does: measure one point below the folder for temporary files, send the run folder, leave nothing.

    ``name``: of that folder; one of this name is what a lost worker left.
    """
    if driver.version != __version__:
        return Sent(None, f"the worker has kvbench {__version__}, the sweep is of {driver.version}; install the same on every node")
    if Path(driver.directory).is_dir():
        os.chdir(driver.directory)
    os.environ.pop(_THREADS, None)  # Ray's own: one for each CPU that the task asked for
    if driver.threads is not None:
        os.environ[_THREADS] = driver.threads
    path = Path(tempfile.gettempdir()) / name
    shutil.rmtree(path, ignore_errors=True)
    error: str | None = None
    try:
        try:
            measure(config, path)
        except Interrupted:
            raise
        except (KvbenchError, MemoryError) as failure:  # errors as text, as Ray would wrap them with its own traceback
            error = reason_of(failure)
        except Exception as fault:  # ours; the other points are not to suffer from it, and the run folder comes back
            error = f"internal error: {type(fault).__name__}: {fault}"
        return Sent(_archive(path) if path.exists() else None, error, str(path))
    finally:
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):  # other points of the sweep may run here
            path.parent.rmdir()


def _archive(path: Path) -> bytes:
    """The folder's files; they are text that repeats itself, so packing them costs less than sending them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        archive.add(path, arcname=".")
    return buffer.getvalue()


def _gather(point: Point, sent: Sent, folder: SweepFolder) -> None:
    """Unpack a run folder beside its place, then move it there: a folder that is there is whole."""
    if sent.archive is not None:
        with folder.writing(), tempfile.TemporaryDirectory(prefix=".arriving-", dir=folder.path) as arriving:
            with tarfile.open(fileobj=io.BytesIO(sent.archive)) as archive:
                archive.extractall(Path(arriving) / "run", filter="data")
            (Path(arriving) / "run").rename(folder.run_folder(point))
    if sent.error is not None:
        folder.failed(point, sent.error.replace(sent.path, str(folder.run_folder(point))))


def _stop(ray: Any, tasks: list[Any]) -> None:
    """Let workers end what they run, with the servers they started."""
    for task in tasks:
        ray.cancel(task)
    with suppress(KeyboardInterrupt):  # the user does not want to wait
        ray.wait(tasks, num_returns=len(tasks), timeout=_STOP_S)


def _gpus(ray: Any) -> int:
    return int(ray.cluster_resources().get("GPU", 0))


def _checked_nodes(ray: Any) -> _Nodes:
    """The nodes that run tasks at all, each found to have this version of kvbench."""

    def version() -> str | None:  # sent as code, not as a name: there may be no kvbench to find it in
        try:
            from kvbench.runs.version import __version__ as there
        except ImportError:
            return None
        return there

    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    asked = [ray.remote(version).options(num_cpus=0, scheduling_strategy=affinity(node["NodeID"], soft=False)).remote() for node in nodes]
    for node, found in zip(nodes, ray.get(asked), strict=True):
        if found != __version__:
            there = "no kvbench" if found is None else f"kvbench {found}"
            where = f"--ray: node {node['NodeManagerAddress']}"
            raise UsageError(f"{where} has {there}, this is {__version__}; install the same version on every node")
    return {node["NodeID"]: node["Resources"]["CPU"] for node in nodes}


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Ray, connected; a cluster that was started here is stopped, and what it wrote is removed."""
    local = address == LOCAL
    if not local:
        _check_reachable(address)
    os.environ.update(_LOCAL_ENVIRONMENT if local else {})
    try:
        import ray
        import ray.util.scheduling_strategies
    except ModuleNotFoundError:
        raise RunFailed("--ray: Ray is not installed; pip install 'kvbench[ray]'") from None
    before = signal.getsignal(signal.SIGTERM)
    folder = tempfile.mkdtemp(prefix="kvbench-ray-") if local else None
    options: dict[str, Any] = {"include_dashboard": False, "_temp_dir": folder} if local else {}
    try:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise RunFailed(f"--ray {address}: {_first_line(error)}") from None
        signal.signal(signal.SIGTERM, before)  # Ray takes it for itself
        yield ray
    finally:
        ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _check_reachable(address: str) -> None:
    """Ray tries for minutes where nobody listens."""
    host, found, port = address.removeprefix("ray://").rpartition(":")
    if not found:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise RunFailed(f"--ray {address}: no cluster answers ({error}); `ray start --head` starts one, --ray alone a local one") from None


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
