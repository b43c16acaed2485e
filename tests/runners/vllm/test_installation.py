"""What an interpreter has is asked of it, and an answer that is none is an error."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kvbench.errors import RunFailed, UsageError
from kvbench.runners.vllm.installation import Installation, ask, find_python, inspect
from tests.runners.servers.lives import fake_python
from tests.runners.vllm.fake_python import HAS


def test_kvbenchs_own_environment_is_seen_as_it_is() -> None:
    seen = inspect(Path(sys.executable))
    assert seen.torch is not None
    if seen.vllm is None:
        assert (seen.device, seen.devices) == (None, 0)
        with pytest.raises(RunFailed, match="has no vLLM"):
            seen.require(lmcache=False)


def test_the_answer_is_what_the_interpreter_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = fake_python(tmp_path)
    assert inspect(python) == Installation(
        python=python, vllm="0.32.0", lmcache="0.5.6", torch="2.13.0", device="cpu", devices=0, accelerator=None
    )
    inspect(python).require(lmcache=True)
    monkeypatch.setenv("FAKE_HAS", json.dumps({**HAS, "lmcache": None}))
    inspect(python).require(lmcache=False)
    with pytest.raises(RunFailed, match="has no LMCache"):
        inspect(python).require(lmcache=True)


def test_where_the_interpreter_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_python(None) == Path(sys.executable)
    own = tmp_path / ".venv-vllm" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch()
    assert find_python(None) == own
    assert find_python(Path(sys.executable)) == Path(sys.executable)
    with pytest.raises(UsageError, match="--vllm-python nowhere: no such file"):
        find_python(Path("nowhere"))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nosuch", "ModuleNotFoundError: No module named 'nosuch'"),
        ("print('hello')", "hello"),
        ("print([1])", r"\[1\]"),
        ("print('{}'); raise SystemExit(2)", "{}"),
        ("pass", "it says nothing"),
    ],
)
def test_an_answer_that_is_none_is_an_error(code: str, words: str) -> None:
    with pytest.raises(RunFailed, match=rf"cannot be asked \({words}\)"):
        ask(Path(sys.executable), code)


def test_the_last_line_is_the_answer() -> None:
    code = "import os, sys; print('noise'); print('{\"in\": \"' + sys.stdin.read() + os.environ['X'] + sys.argv[1] + '\"}')"
    assert ask(Path(sys.executable), code, "a", {"X": "b"}, "c") == {"in": "abc"}


def test_what_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").touch(mode=0o644)
    with pytest.raises(RunFailed, match=r"cannot be asked \(Permission denied\)"):
        ask(tmp_path / "text", "pass")
