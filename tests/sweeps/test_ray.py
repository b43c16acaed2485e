"""Sweeps on Ray: what a worker does, and a real cluster of this machine that loses a worker, and that Ctrl-C ends."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

import kvbench
from kvbench.cli.main import main
from kvbench.cli.run import _measure
from kvbench.config.run import RunConfig
from kvbench.errors import Interrupted, OutOfMemory
from kvbench.experiments.composed import load_config
from kvbench.runs.run_folder import read_run
from kvbench.runs.sweep_folder import SweepFolder, read_sweep
from kvbench.session import session
from kvbench.session.watcher import Watcher
from kvbench.sweeps import ray_cluster
from kvbench.sweeps.points import plan_sweep
from tests.folders import tree

OPTIONS = {"runner": "simulator", "docs": "3", "doc_tokens": "100", "kv_tokens": "256"}
WORDS = ["run", "--runner", "simulator", "--docs", "60", "--doc-tokens", "2000"]
SWEEP = ["--sweep", "seed=1,2,3", "--ray"]

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(nodes[0], allow_graceful=False)
sys.stdin.readline()
cluster.shutdown()
"""

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (pip install 'kvbench[ray]')")


# What a worker does; no cluster is needed for that.


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The worker's folder for temporary files."""
    folder = tmp_path / "worker"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    return folder


def driver(**given: str) -> ray_cluster.Driver:
    values = {"version": kvbench.__version__, "directory": os.fspath(Path.cwd()), "threads": None, **given}
    return ray_cluster.Driver(**values)  # type: ignore[arg-type]


def test_a_worker_sends_its_run_folder_and_leaves_nothing(here: Path, tmp_path: Path) -> None:
    planned = plan_sweep(None, OPTIONS, ["reuse=0,1"], [])
    session.run(planned.configs[0], tmp_path / "alone", Watcher(), ["kvbench", "run"])
    (here / "kvbench-1" / "reuse-0").mkdir(parents=True)  # of a worker that was lost
    measure = partial(_measure, quiet=True, command=["kvbench", "run"])
    sent = ray_cluster.run_here(planned.configs[0], measure, "kvbench-1/reuse-0", driver())
    assert list(here.iterdir()) == []
    assert sent.error is None
    with SweepFolder.opened(tmp_path / "out", planned.sweep) as folder:
        ray_cluster._gather(planned.sweep.points[0], sent, folder)
        assert folder.is_finished(planned.sweep.points[0])
    assert set(tree(tmp_path / "out")) == {"sweep.json", "reuse-0", *(f"reuse-0/{name}" for name in tree(tmp_path / "alone"))}
    gathered, alone = (read_run(path).requests for path in (tmp_path / "out" / "reuse-0", tmp_path / "alone"))
    assert [line["cached_tokens_host"] for line in gathered] == [line["cached_tokens_host"] for line in alone]


def test_what_a_point_measured_before_it_failed_comes_back_with_its_reason(here: Path, tmp_path: Path) -> None:
    planned = plan_sweep(None, OPTIONS, ["reuse=0,1"], [])
    point = planned.sweep.points[0]

    def fails(config: RunConfig, path: Path) -> None:
        session.run(config, path, Watcher(), [])
        raise OutOfMemory(f"no more; what was measured is in {path}")

    sent = ray_cluster.run_here(planned.configs[0], fails, "kvbench-1/reuse-0", driver())
    with SweepFolder.opened(tmp_path / "out", planned.sweep) as folder:
        ray_cluster._gather(point, sent, folder)
    assert read_sweep(tmp_path / "out").points[0].error == f"no more; what was measured is in {tmp_path / 'out' / 'reuse-0'}"
    assert len(read_run(tmp_path / "out" / "reuse-0").requests) == 18


def test_a_fault_of_ours_is_a_reason_and_a_cancelled_point_none(here: Path) -> None:
    config = load_config(None, OPTIONS)

    def broken(error: BaseException) -> Callable[[RunConfig, Path], None]:
        def measure(config: RunConfig, path: Path) -> None:
            path.mkdir(parents=True)
            raise error

        return measure

    sent = ray_cluster.run_here(config, broken(ZeroDivisionError("made so")), "kvbench-1/a", driver())
    assert sent.error == "internal error: ZeroDivisionError: made so"
    for error in (KeyboardInterrupt(), Interrupted("interrupted")):
        with pytest.raises(type(error)):
            ray_cluster.run_here(config, broken(error), "kvbench-1/a", driver())
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(("threads", "seen"), [(None, None), ("3", "3")])
def test_a_worker_runs_in_the_drivers_folder_with_its_threads(here: Path, tmp_path: Path, threads: str, seen: str | None) -> None:
    def look(config: RunConfig, path: Path) -> None:
        found.append((Path.cwd(), os.environ.get("OMP_NUM_THREADS")))

    found: list[tuple[Path, str | None]] = []
    for directory in (here, tmp_path / "another machine's"):
        ray_cluster.run_here(load_config(None, OPTIONS), look, "a/b", driver(directory=str(directory), threads=threads))
    assert found == [(here, seen), (here, seen)]


def test_a_worker_of_another_version_measures_nothing(here: Path) -> None:
    sent = ray_cluster.run_here(load_config(None, OPTIONS), lambda *_: pytest.fail("it ran"), "a/b", driver(version="0.0.1"))
    assert (sent.archive, sent.error) == (
        None, f"the worker has kvbench {kvbench.__version__}, the sweep is of 0.0.1; install the same on every node")  # fmt: skip


# The command.


@pytest.mark.parametrize(
    ("words", "address"),
    [
        (["--ray"], "local"),
        (["--ray", "--quiet"], "local"),
        (["--ray", "cyclic"], "local"),
        (["--ray", "10.0.0.1:6379"], "10.0.0.1:6379"),
        (["--ray", "auto", "cyclic"], "auto"),
        (["--ray=ray://head:10001"], "ray://head:10001"),
        ([], None),
    ],
)
def test_the_address_may_be_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], address: str | None) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr("kvbench.cli.run._run_sweep", lambda planned, out, ray, *_: seen.append(ray))
    monkeypatch.setattr("kvbench.cli.run._show_sweep", lambda *_: None)
    assert main(["run", "--runner", "simulator", "--sweep", "seed=1,2", *words]) == 0
    assert seen == [address]


def test_without_ray_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([*WORDS, *SWEEP, "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == "kvbench: error: --ray: Ray is not installed; pip install 'kvbench[ray]'\n"
    assert list(tmp_path.iterdir()) == []


def test_where_no_cluster_answers_it_says_so_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, *SWEEP, "127.0.0.1:1", "--out", str(tmp_path / "out")]) == 1
    assert "--ray 127.0.0.1:1: no cluster answers" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# A real cluster.


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for temporary files with a short name: Ray's sockets lie below it."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def start(out: Path, short: Path, *address: str) -> subprocess.Popen[str]:
    """A sweep on Ray, in a process of its own."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from kvbench.cli.main import main; sys.exit(main())"
    )
    environment = {**os.environ, "TMPDIR": str(short), **LOOPBACK}
    command = [sys.executable, "-c", code, *WORDS, *SWEEP, *address, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def end(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started."""
    for child in family(process) if process.poll() is None else []:
        child.kill()
    process.kill()
    process.communicate()


@pytest.fixture
def running(short: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A sweep on a cluster of its own, with a point in progress."""
    process = start(tmp_path / "out", short)
    try:
        wait_for(lambda: bool(in_progress(short)), process)
        yield process
    finally:
        end(process)


@pytest.fixture
def cluster(short: Path) -> Iterator[subprocess.Popen[str]]:
    """A cluster of two nodes, and a head that runs nothing; a line on its stdin kills a node."""
    environment = {**os.environ, "TMPDIR": str(short), "RAY_TMPDIR": str(short), "RAY_USAGE_STATS_ENABLED": "0", **LOOPBACK}
    process = subprocess.Popen([sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        end(process)


def in_progress(short: Path) -> list[Path]:
    """The points of which a worker has measured something."""
    return [path.parent for path in short.glob("kvbench-*/seed-*/requests.jsonl") if path.stat().st_size]


def wait_for(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def listened_to(process: psutil.Process) -> set[str]:
    """Addresses a process listens at; none of one that has ended in between, as short-lived ones of Ray do."""
    try:
        return {connection.laddr.ip for connection in process.net_connections() if connection.status == "LISTEN"}
    except psutil.NoSuchProcess:
        return set()


@needs_ray
def test_a_lost_workers_point_runs_again_and_every_folder_is_gathered(running: subprocess.Popen[str], short: Path, tmp_path: Path) -> None:
    (worker,) = [child for child in family(running) if child.name().startswith("ray::kvbench")]
    everybody = family(running)
    listening = {address for child in everybody for address in listened_to(child)}
    os.kill(worker.pid, signal.SIGKILL)
    out, error = running.communicate(timeout=120)
    assert running.returncode == 0, error
    assert "kvbench: seed=1 (1 of 3): its worker was lost; run again (2 of 3)" in error.splitlines()
    runs = [read_run(tmp_path / "out" / f"seed-{seed}") for seed in (1, 2, 3)]
    assert [(run.manifest["status"], run.manifest["config"]["seed"], len(run.requests)) for run in runs] == [
        ("complete", seed, 360) for seed in (1, 2, 3)
    ]
    assert set(tree(tmp_path / "out")) >= {"sweep.json", "seed-1", "seed-2", "seed-3"}
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == []
    assert "Side by side" in out
    # Nothing of it is left, and nothing of it could be reached from elsewhere.
    assert [child for child in everybody if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    assert list(short.iterdir()) == []
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


@needs_ray
def test_ctrl_c_ends_the_cluster_and_its_workers(running: subprocess.Popen[str], short: Path, tmp_path: Path) -> None:
    everybody = family(running)
    running.send_signal(signal.SIGINT)
    out, error = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert f"the same command with --out {tmp_path / 'out'} goes on with the points that are left" in error
    assert [child for child in everybody if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    assert list(short.iterdir()) == []


@needs_ray
def test_a_lost_nodes_point_runs_on_another_node_of_an_existing_cluster(
    cluster: subprocess.Popen[str], short: Path, tmp_path: Path
) -> None:
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    process = start(tmp_path / "out", short, cluster.stdout.readline().strip())
    try:
        wait_for(lambda: bool(in_progress(short)), process)
        cluster.stdin.write("\n")
        cluster.stdin.flush()
        _, error = process.communicate(timeout=200)
    finally:
        end(process)
    assert process.returncode == 0, error
    assert error.startswith("kvbench: Ray: 2 nodes, a point on each\n")
    assert "its worker was lost; run again" in error
    assert [len(read_run(tmp_path / "out" / f"seed-{seed}").requests) for seed in (1, 2, 3)] == [360, 360, 360]
    assert cluster.poll() is None  # it is not ours to stop
