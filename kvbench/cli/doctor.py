"""``kvbench doctor``: which runners and tiers can run on this machine, and why not."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kvbench.cli import output
from kvbench.cli.commands import build_command, option
from kvbench.runs.version import __version__

if TYPE_CHECKING:
    from kvbench.runners.vllm.installation import Installation

ENGINE_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")
LINK = Path(__file__).parents[1] / "runners" / "engine" / "link.py"
NEEDS = {"disk": "with --disk FOLDER", "redis": "with --redis ADDRESS"}
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Check:
    """Whether one runner can run one tier here; the note says why not, or what it needs."""

    runner: str
    tier: str
    can_run: bool
    note: str


def doctor(
    vllm_python: Annotated[
        Path | None,
        option(
            "Environment",
            "--vllm-python",
            metavar="FILE",
            help="Interpreter that has vLLM. [default: .venv-vllm/bin/python, else kvbench's own]",
        ),
    ] = None,
    as_json: Annotated[bool, option("Output", "--json", help="Print one JSON document. [default: off]")] = False,
) -> None:
    """Say which runners and tiers can run here, and why not.

    Also versions, free and lockable memory, and, where there is a GPU, what copies to and from it really give. Loads no model and starts
    no server. Always exits with 0 if the machine could be looked at.
    """
    report = examine(vllm_python)
    output.write(json.dumps(report, indent=2) + "\n" if as_json else render(report))


def examine(vllm_python: Path | None) -> dict[str, Any]:
    """Everything ``doctor`` says, as JSON can hold it; ``None`` is unknown."""
    from kvbench.errors import RunFailed
    from kvbench.runners.vllm.installation import find_python, inspect

    packages = {name: _version(name) for name in ENGINE_PACKAGES}
    python = find_python(vllm_python)
    try:
        installation, trouble = inspect(python), None
    except RunFailed as error:
        installation, trouble = None, str(error)
    serves_gpu = installation is not None and installation.device == "cuda"
    link = _link(python if serves_gpu else Path(sys.executable)) if serves_gpu or packages["torch"] is not None else None
    return {
        "kvbench": __version__,
        "python": platform.python_version(),
        "os": platform.platform(),
        "memory": _memory(),
        "packages": packages,
        "vllm": {"python": str(python), "error": trouble} if installation is None else {**asdict(installation), "python": str(python)},
        "redis_server": shutil.which("redis-server"),
        "link": link,
        "checks": [asdict(check) for check in _checks(packages, installation)],
    }


def render(report: dict[str, Any]) -> str:
    """The report as a table for people, in 80 columns where paths allow it."""
    memory, vllm, link = report["memory"], report["vllm"], report["link"]
    lockable = "unlimited" if memory["lockable_gib"] == "unlimited" else f"{_shown(memory['lockable_gib'])} GiB"
    lines = [
        f"kvbench   {report['kvbench']}, Python {report['python']}, {report['os']}",
        f"memory    {_shown(memory['total_gib'])} GiB, {_shown(memory['available_gib'])} free, lockable {lockable}",
        f"engine    {', '.join(f'{name} {_shown(version)}' for name, version in report['packages'].items())}",
        f"vLLM      {_shown(vllm.get('vllm'))} for {_shown(vllm.get('device'))}, LMCache {_shown(vllm.get('lmcache'))}",
        f"          in {vllm['python']}{': ' + vllm['error'] if 'error' in vllm else ''}",
        f"Redis     {_shown(report['redis_server'])}",
        f"GPU link  {_link_words(link)}",
        "",
        f"{'runner':<10}{'tier':<16}{'can run':<9}note",
    ]
    for check in report["checks"]:
        can_run = "yes" if check["can_run"] else "no"
        lines.append(f"{check['runner']:<10}{check['tier']:<16}{can_run:<9}{check['note']}".rstrip())
    return "\n".join(lines) + "\n"


def _checks(packages: dict[str, str | None], installation: Installation | None) -> list[Check]:
    from kvbench.runners.vllm.tiers import TIERS

    missing = [name for name, version in packages.items() if version is None]
    note = f"missing: {', '.join(missing)}; pip install 'kvbench[engine]'" if missing else ""
    checks = [Check("simulator", "any", True, "predicts, and measures nothing")]
    checks += [Check("engine", tier, not missing, note) for tier in ("none", "cpu")]
    for name in TIERS:
        obstacle = _obstacle(name, installation)
        checks.append(Check("vllm", name, obstacle is None, obstacle or NEEDS.get(name, "")))
    return checks


def _obstacle(tier: str, installation: Installation | None) -> str | None:
    """Why vLLM cannot run a tier here; ``None`` where it can."""
    from kvbench.runners.vllm.tiers import TIERS

    if installation is None or installation.vllm is None:
        return "no vLLM there: try --vllm-python FILE"
    if installation.device is None:
        return "vLLM is built for a GPU, and there is none"
    if TIERS[tier].lmcache and installation.lmcache is None:
        return "no LMCache beside vLLM: install lmcache there"
    if TIERS[tier].device not in (None, installation.device):
        return "needs a GPU"
    if tier == "lmcache-inproc" and installation.device == "cpu":
        return "never hits on the CPU: LMCache fails inside"
    return None


def _memory() -> dict[str, Any]:
    """GiB in all, available, and lockable, which bounds pinned memory: a number, ``unlimited``, or ``None`` where unknown."""
    import psutil

    memory = psutil.virtual_memory()
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        lockable: Any = "unlimited" if limit == resource.RLIM_INFINITY else round(limit / GIB, 3)
    except (ImportError, AttributeError):  # neither exists on Windows
        lockable = None
    return {"total_gib": round(memory.total / GIB, 1), "available_gib": round(memory.available / GIB, 1), "lockable_gib": lockable}


def _link(python: Path) -> dict[str, Any] | None:
    """Measured copy rates; ``None`` where they cannot be measured."""
    from kvbench.errors import RunFailed
    from kvbench.runners.vllm.installation import ask

    try:
        return ask(python, str(LINK))
    except RunFailed:
        return None


def _link_words(link: dict[str, Any] | None) -> str:
    if link is None:
        return "unknown: no torch to measure it with"
    if link["gpu"] is None:
        return "no GPU: a restore is a memory copy here"
    pinned, pageable = ([link[f"{kind}_{way}_gpu_gib_s"] for way in ("to", "from")] for kind in ("pinned", "pageable"))
    return f"{link['gpu']}: GiB/s to and from it, pinned {pinned[0]}, {pinned[1]}; pageable {pageable[0]}, {pageable[1]}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _shown(value: Any) -> str:
    return "–" if value is None else str(value)


build = partial(build_command, doctor, "kvbench doctor --vllm-python .venv-vllm/bin/python --json")
