"""The machine a run was measured on, as far as it can explain the figures."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pandas", "scipy")


def describe_machine() -> dict[str, Any]:
    """CPU, cores usable by this process, RAM in GiB, OS, Python, package versions, and the commit of a kvbench checkout.

    What only a runner knows (device, threads, GPU, driver) it adds itself.
    """
    return {
        "cpu": _cpu_name(),
        "cores": len(psutil.Process().cpu_affinity() or []) if hasattr(psutil.Process, "cpu_affinity") else psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "os": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit this package was imported from; ``None`` where it is not a checkout of its own."""
    here = Path(__file__).resolve().parents[1]
    if not (here.parent / ".git").exists():
        return None
    try:
        result = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None
