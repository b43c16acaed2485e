"""Borders: torch lives under runners/engine only, and no room reaches into one that it must not know."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvbench

PACKAGE = Path(kvbench.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

ENGINE_ONLY = ("torch", "transformers", "safetensors")
ONLY_IN = dict.fromkeys(ENGINE_ONLY, ("runners/engine",)) | {
    "httptools": ("runners/http", "testing"),
    "uvloop": ("runners/http", "testing"),
    "httpx": ("runners/http", "runners/servers", "runners/vllm"),
    "ray": ("sweeps",),
}
"""Package, and the folders that may import it, at the top or inside a function. The timed client and the fake server it is held against
read HTTP themselves; httpx is for what is not timed."""

NEVER = {
    "analysis": ("runners", "experiments", "cli", "reports", "workloads", "sweeps"),
    "reports": ("runners", "experiments", "cli", "workloads", "sweeps"),
    "drawing": ("analysis", "summary", "experiments", "runs", "runners", "cli", "reports", "compare", "planning", "workloads", "sweeps"),
    "summary": ("cli", "reports", "sweeps"),
    "workloads": ("runners", "experiments", "cli", "reports", "analysis", "sweeps"),
    "runners": ("experiments", "cli", "reports", "analysis", "sweeps"),
    "experiments": ("cli", "reports", "sweeps"),
    "runners/http": ("runners.servers", "runners.vllm", "runners.engine", "runners.simulator"),
    "runners/servers": ("runners.vllm", "runners.engine", "runners.simulator"),
    "sweeps": ("runners", "experiments", "cli", "reports", "analysis", "workloads"),
}
"""Room, and the rooms it does not know (``experiments/session.py`` asks ``analysis`` whether to believe what it measured)."""


def imports(file: Path) -> Iterator[str]:
    """Every module a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(("package", "rooms"), ONLY_IN.items(), ids=ONLY_IN)
def test_heavy_packages_stay_in_their_room(package: str, rooms: tuple[str, ...]) -> None:
    outside = [file for file in FILES if not any(file.is_relative_to(PACKAGE / room) for room in rooms)]
    assert [str(file) for file in outside if any(name.split(".")[0] == package for name in imports(file))] == []


def test_the_engine_does_import_torch() -> None:
    engine = [name.split(".")[0] for file in FILES if file.is_relative_to(PACKAGE / "runners/engine") for name in imports(file)]
    assert {"torch", "transformers"} <= set(engine)


@pytest.mark.parametrize(("room", "strangers"), NEVER.items(), ids=NEVER)
def test_rooms_do_not_know_strangers(room: str, strangers: tuple[str, ...]) -> None:
    files = [file for file in FILES if file.is_relative_to(PACKAGE / room)]
    assert files
    forbidden = tuple(f"kvbench.{stranger}" for stranger in strangers)
    assert [(file.name, name) for file in files for name in imports(file) if name.startswith(forbidden)] == []


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)


def circles(room: str) -> list[list[str]]:
    """Modules of a room that import each other, however many steps it takes, what only type checkers import included."""
    graph = {module_of(file): set(imports(file)) for file in FILES if file.is_relative_to(PACKAGE / room)}
    edges = {name: {other for other in graph if other in found or any(one.startswith(f"{other}.") for one in found)} - {name}
             for name, found in graph.items()}  # fmt: skip
    while leaves := {name for name, found in edges.items() if not found}:
        edges = {name: found - leaves for name, found in edges.items() if name not in leaves}
    return [[name, *sorted(found)] for name, found in edges.items()]


@pytest.mark.parametrize("room", ["runners/http", "runners/servers", "runners/vllm", "runners/simulator", "session"])
def test_no_module_imports_one_that_imports_it(room: str) -> None:
    assert circles(room) == []


def test_everything_but_the_engine_is_imported_without_torch() -> None:
    names = [
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        for file in FILES
        if not any(file.is_relative_to(PACKAGE / room) for room in ("runners/engine", "testing")) and not file.stem.startswith("__")
    ]
    assert {"kvbench.summary.summary", "kvbench.reports.terminal", "kvbench.cli.run", "kvbench.session.session"} <= set(names)
    heavy = set(ENGINE_ONLY)
    code = f"import sys, importlib; [importlib.import_module(name) for name in {names}]; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
