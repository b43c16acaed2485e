"""The commands ``serve`` and ``doctor``, on an interpreter that only seems to have vLLM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kvbench.cli import doctor
from kvbench.cli.main import main
from kvbench.runners.servers.server import free_ports
from kvbench.runners.vllm.installation import ask
from kvbench.testing.fake_server import serving as serving_elsewhere
from tests.runners.servers.lives import MARK, all_gone, fake_python
from tests.runners.vllm.fake_python import HAS

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return fake_python(tmp_path)


def serving(python: Path, *more: str) -> list[str]:
    folder, port = python.parent, free_ports(1)[0]
    words = ["serve", "--vllm-python", str(python), "--model", str(folder / "model"), "--logs", str(folder / "logs")]
    return [*words, f"--port={port}", *more]


def test_serve_prints_what_to_copy_and_ends_with_ctrl_c(python: Path) -> None:
    port, mark = free_ports(1)[0], f"serve-{os.getpid()}"
    argv = serving(
        python, "--tier=cpu", f"--port={port}", "--host-gib=0.5", "--env=HF_TOKEN=geheim", f"--env={MARK}={mark}", "--vllm-arg=--x=1"
    )
    code = "import sys; from kvbench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen([sys.executable, "-c", code, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] not in ("Ctrl-C stops it.\n", ""):
        lines.append(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=30)
    logs = ", ".join(str(python.parent / "logs" / f"{name}-cpu-r1.log") for name in ("lmcache", "server"))
    assert (process.returncode, rest, errors) == (0, "\nStopped.\n", f"kvbench: starting vLLM for arm cpu; log: {logs}\n")
    assert all_gone(mark, 0)
    text = "".join(lines)
    assert text.startswith("vLLM 0.32.0, arm cpu (LMCache in host memory, multi-process mode)\n")
    assert f"Address:   http://127.0.0.1:{port}/v1, model tiny\n" in text
    assert "Pool:      3,072 tokens, 96 blocks of 32\n" in text
    assert "Longest:   3,040 tokens" in text
    assert f"Logs:      {python.parent / 'logs'}\n" in text
    lmcache, vllm = (line for line in lines if f"{python} -m " in line)
    assert "lmcache.cli.main server" in lmcache
    assert "--l1-size-gb=0.5" in lmcache
    assert vllm.startswith("HF_HUB_OFFLINE=1 ")
    assert vllm.endswith(" --x=1\n")
    assert "HF_TOKEN='***'" in vllm
    assert "geheim" not in text


def test_serve_that_is_terminated_stops_its_servers_first(python: Path) -> None:
    mark = f"terminated-{os.getpid()}"
    code = "import sys; from kvbench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    argv = serving(python, f"--env={MARK}={mark}")
    process = subprocess.Popen([sys.executable, "-c", code, *argv], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline() != "Ctrl-C stops it.\n":
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30)[0] == "\nStopped.\n"
    assert process.returncode == 0
    assert all_gone(mark, 0)


def test_serve_that_starts_nothing_leaves_no_folder(
    python: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with serving_elsewhere() as other:
        argv = ["serve", "--vllm-python", str(python), "--model", str(python.parent / "model"), f"--port={other.port}"]
        assert main(argv) == 1
    assert list((tmp_path / "temporary").iterdir()) == []


def test_serve_says_why_a_server_did_not_start(python: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DIES", "vllm")
    assert main(serving(python)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        "the vLLM server did not start: it ended with code 1: OSError: [Errno 98] Address already in use; another process" in captured.err
    )
    assert captured.err.count("\n") == 2


def test_serve_does_not_take_another_server_for_its_own(python: Path, capsys: Captured) -> None:
    with serving_elsewhere() as other:
        assert main(serving(python, f"--port={other.port}")) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"--port {other.port}: nobody can listen there (Address already in use); name a free one with --port N" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--tier=gpu"], 2, "--tier: Input should be 'none', 'cpu', 'lmcache-inproc', 'disk', 'redis' or 'native' (got 'gpu')"),
        (["--tier=native"], 1, "needs a GPU"),
        (["--tier=disk"], 2, "--tier disk needs a folder for its files: --disk FOLDER"),
        (["--tier=redis"], 2, "--tier redis needs the address of a Redis server"),
        (["--kv-tokens=100"], 2, "--kv-tokens needs --block-size"),
        (["--env=X"], 2, "--env X: NAME=VALUE is expected"),
        (["--port=0"], 2, "--port"),
        (["--host-gib=0"], 2, "--host-gib"),
        (["--logs=/dev/null/x"], 2, "--logs /dev/null/x: cannot be made"),
        (["--vllm-python=/nowhere"], 2, "--vllm-python /nowhere: no such file"),
    ],
)
def test_wrong_use_of_serve(python: Path, capsys: Captured, more: list[str], code: int, words: str) -> None:
    assert main(serving(python, *more)) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1


def checks(capsys: Captured, python: Path) -> dict[str, tuple[bool, str]]:
    assert main(["doctor", "--json", "--vllm-python", str(python)]) == 0
    report = json.loads(capsys.readouterr().out)
    return {f"{check['runner']} {check['tier']}": (check["can_run"], check["note"]) for check in report["checks"]}


@pytest.fixture(autouse=True)
def _link_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_link", lambda _: {"gpu": None})


def test_doctor_on_a_cpu(capsys: Captured, python: Path) -> None:
    assert checks(capsys, python) == {
        "simulator any": (True, "predicts, and measures nothing"),
        "engine none": (True, ""),
        "engine cpu": (True, ""),
        "vllm none": (True, ""),
        "vllm cpu": (True, ""),
        "vllm lmcache-inproc": (False, "never hits on the CPU: LMCache fails inside"),
        "vllm disk": (True, "with --disk FOLDER"),
        "vllm redis": (True, "with --redis ADDRESS"),
        "vllm native": (False, "needs a GPU"),
    }


@pytest.mark.parametrize(
    ("has", "tier", "note"),
    [
        ({"vllm": None, "device": None}, "none", "no vLLM there: try --vllm-python FILE"),
        ({"device": None}, "none", "vLLM is built for a GPU, and there is none"),
        ({"lmcache": None}, "cpu", "no LMCache beside vLLM: install lmcache there"),
        ({"lmcache": None}, "none", ""),
        ({"device": "cuda"}, "native", ""),
        ({"device": "cuda"}, "lmcache-inproc", ""),
    ],
)
def test_doctor_elsewhere(
    capsys: Captured, python: Path, monkeypatch: pytest.MonkeyPatch, has: dict[str, str | None], tier: str, note: str
) -> None:
    monkeypatch.setenv("FAKE_HAS", json.dumps({**HAS, **has}))
    assert checks(capsys, python)[f"vllm {tier}"] == (not note, note)


def test_doctor_without_the_engines_packages(capsys: Captured, python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("torch", "safetensors") else "1")
    assert checks(capsys, python)["engine cpu"] == (False, "missing: torch, safetensors; pip install 'kvbench[engine]'")


def test_doctor_for_people(capsys: Captured, python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"pinned_to_gpu_gib_s": 50.1, "pinned_from_gpu_gib_s": 49.2, "pageable_to_gpu_gib_s": 9.0, "pageable_from_gpu_gib_s": 8.0}
    monkeypatch.setattr(doctor, "_link", lambda _: {"gpu": "H200", **rates})
    assert main(["doctor", "--vllm-python", str(python)]) == 0
    text = capsys.readouterr().out
    assert "vLLM      0.32.0 for cpu, LMCache 0.5.6\n" in text
    assert "GPU link  H200: GiB/s to and from it, pinned 50.1, 49.2; pageable 9.0, 8.0\n" in text
    assert "vllm      native          no       needs a GPU\n" in text
    assert max(len(line) for line in text.split("runner  ")[1].splitlines()) <= 80


def test_doctor_says_that_an_interpreter_does_not_answer(capsys: Captured, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    python.chmod(0o755)
    assert main(["doctor", "--vllm-python", str(python)]) == 0
    text = capsys.readouterr().out
    assert "vLLM      – for –, LMCache –\n" in text
    assert f"in {python}: {python}: cannot be asked (broken)" in text
    assert main(["doctor", "--vllm-python", str(tmp_path / "no")]) == 2


def test_the_link_is_measured_in_a_process_of_its_own() -> None:
    assert ask(Path(sys.executable), str(doctor.LINK)).keys() >= {"gpu"}
