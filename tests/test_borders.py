"""Borders: heavy packages stay in their room, a room knows only those below it, nothing goes round in a circle, no name is there twice."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import kvbench
from kvbench.experiments.registry import experiments

PACKAGE = Path(kvbench.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

ENGINE_ONLY = ("torch", "transformers", "safetensors")
ONLY_IN = dict.fromkeys(ENGINE_ONLY, ("runners/engine",)) | {
    "httptools": ("runners/http", "testing"),
    "uvloop": ("runners/http", "testing"),
    "httpx": ("runners/http", "runners/servers", "runners/vllm"),
    "ray": ("sweeps",),
}
"""Package, and the folders that may import it, at the top or inside a function. The timed client and the fake server it is compared with
read HTTP themselves; httpx is for what is not timed."""

ROOMS = (
    "errors", "registry", "workloads", "models", "drawing", "config", "runs", "runners", "analysis", "metrics", "experiments",
    "comparison", "summary", "library", "session", "planning", "sweeps", "reports", "testing", "cli",
)  # fmt: skip
"""The rooms from the ground up: each imports only those before it."""

APART = {
    "analysis": ("runners", "workloads"),
    "metrics": ("runners", "workloads"),
    "comparison": ("runners", "workloads"),
    "summary": ("runners", "workloads"),
    "reports": ("runners", "experiments", "session", "sweeps"),
    "sweeps": ("runners", "session", "analysis", "summary", "planning"),
    "planning": ("session", "summary", "analysis"),
    "runners/http": ("runners/vllm", "runners/servers", "runners/engine", "runners/simulator"),
    "runners/servers": ("runners/vllm", "runners/engine", "runners/simulator"),
    "runners/simulator": ("runners/engine", "runners/vllm", "runners/http"),
    "runners/engine": ("runners/simulator", "runners/vllm", "runners/http"),
}
"""Rooms, and rooms below them that they do not know all the same: analysis measures nothing; a check shares no code with the checked."""


def module_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


def imports(file: Path) -> Iterator[str]:
    """Every module a file imports, wherever in it: inside functions, and for type checkers only, too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def edges() -> Mapping[str, set[str]]:
    """Each module of the package, and those of it that it imports."""
    found: dict[str, set[str]] = {}
    for name, file in MODULES.items():
        named = {other if other in MODULES else other.rpartition(".")[0] for other in imports(file)}
        found[name] = (named & MODULES.keys()) - {name}
    return found


EDGES = edges()


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize(("package", "rooms"), ONLY_IN.items(), ids=ONLY_IN)
def test_heavy_packages_stay_in_their_room(package: str, rooms: tuple[str, ...]) -> None:
    outside = [file for file in FILES if not any(file.is_relative_to(PACKAGE / room) for room in rooms)]
    assert [str(file) for file in outside if any(name.split(".")[0] == package for name in imports(file))] == []


def test_the_engine_does_import_torch() -> None:
    engine = [name.split(".")[0] for file in FILES if file.is_relative_to(PACKAGE / "runners/engine") for name in imports(file)]
    assert {"torch", "transformers"} <= set(engine)


def test_nothing_is_loose_at_the_root_but_errors() -> None:
    assert {file.stem for file in PACKAGE.glob("*.py")} == {"__init__", "__main__", "errors"}
    assert {room_of(name) for name in MODULES} - {"", "__main__"} == set(ROOMS)


def test_a_room_imports_only_rooms_below_it() -> None:
    order = {room: place for place, room in enumerate(ROOMS)}
    upwards = [
        (name, other)
        for name, found in EDGES.items()
        for other in found
        if room_of(name) in order and room_of(other) in order and order[room_of(other)] > order[room_of(name)]
    ]
    assert upwards == []


@pytest.mark.parametrize(("room", "strangers"), APART.items(), ids=APART)
def test_rooms_do_not_know_strangers(room: str, strangers: tuple[str, ...]) -> None:
    inside = {name: found for name, found in EDGES.items() if MODULES[name].is_relative_to(PACKAGE / room)}
    assert inside
    forbidden = tuple(f"kvbench.{stranger.replace('/', '.')}." for stranger in strangers)
    assert [(name, other) for name, found in inside.items() for other in found if f"{other}.".startswith(forbidden)] == []


def test_no_module_imports_one_that_imports_it() -> None:
    left = {name: set(found) for name, found in EDGES.items()}
    while leaves := {name for name, found in left.items() if not found}:
        left = {name: found - leaves for name, found in left.items() if name not in leaves}
    assert left == {}


NAMED = ("planning/config.py", "planning/commands.py", "config/run.py", "comparison/identity.py")
"""Modules that name an experiment: a plan is of documents or of a trace, one is the default, and a run with a file of requests has times of
its own."""


def test_no_experiment_is_named_outside_its_room() -> None:
    names = set(experiments())
    rooms = (*(PACKAGE / "experiments" / name for name in names), *(PACKAGE / module for module in NAMED))
    outside = [file for file in FILES if not any(file.is_relative_to(room) for room in rooms)]
    nodes = ((file, node) for file in outside for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    assert [(file.name, node.value) for file, node in nodes if isinstance(node, ast.Constant) and node.value in names] == []


def test_no_class_name_is_there_twice() -> None:
    names = Counter(
        node.name for file in FILES for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_everything_but_the_engine_is_imported_without_torch() -> None:
    names = [
        name
        for name, file in MODULES.items()
        if not any(file.is_relative_to(PACKAGE / room) for room in ("runners/engine", "testing")) and not file.stem.startswith("__")
    ]
    assert {"kvbench.summary.summary", "kvbench.reports.formats.terminal", "kvbench.cli.run", "kvbench.session.session"} <= set(names)
    heavy = set(ENGINE_ONLY)
    code = f"import sys, importlib; [importlib.import_module(name) for name in {names}]; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
