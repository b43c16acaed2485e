"""The extra ``vllm`` and its constraints: what they pin is what kvbench, vLLM and LMCache ask for.

``data/requires-*.txt`` are the requirements in the metadata of the two packages' wheels. ``scripts/vllm-constraints --check`` resolves the
file again, with every package that these need in turn; that needs a package index, and is not a test.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGET = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "python_version": "3.11", "extra": ""}
METADATA = {name: Path(__file__).parent / "data" / f"requires-{name}.txt" for name in ("vllm-0.32.0", "lmcache-0.5.6")}


def pins(name: str) -> dict[str, str]:
    """The version of each package in a file of constraints."""
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    pairs = (line.split(";")[0].split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(package.split("[")[0]): version.strip() for package, version in pairs}


def requirements(lines: list[str]) -> Iterator[Requirement]:
    """Those that hold on the machine that the constraints are for."""
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate(TARGET):
            yield requirement


def unmet(lines: list[str], pinned: dict[str, str]) -> dict[str, str | None]:
    """The requirements that the pins do not satisfy, each with the version pinned."""
    found = {str(item): pinned.get(canonicalize_name(item.name)) for item in requirements(lines)}
    return {line: version for line, version in found.items() if version is None or version not in Requirement(line).specifier}


def asked(name: str) -> list[str]:
    """What a package requires."""
    lines = METADATA[name].read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]


OURS = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["engine"], *PROJECT["optional-dependencies"]["vllm"]]


def test_the_pins_satisfy_kvbench_with_both_extras() -> None:
    assert unmet(OURS, pins("vllm-constraints.txt")) == {}


@pytest.mark.parametrize("name", METADATA)
def test_the_pins_satisfy_the_package_that_they_pin(name: str) -> None:
    package, version = name.rsplit("-", 1)
    assert pins("vllm-constraints.txt")[package] == version
    assert len(asked(name)) > 30
    assert unmet(asked(name), pins("vllm-constraints.txt")) == {}


def test_the_core_s_own_pins_do_not_which_is_why_there_are_two_files() -> None:
    core = pins("constraints.txt")
    missed = {Requirement(line).name for name in METADATA for line, version in unmet(asked(name), core).items() if version is not None}
    assert {"transformers", "numpy", "prometheus_client", "protobuf"} <= missed


def test_what_both_files_pin_differs_only_where_it_must() -> None:
    core, served = pins("constraints.txt"), pins("vllm-constraints.txt")
    differing = {name for name in core.keys() & served.keys() if core[name] != served[name]}
    assert {"transformers", "numpy", "prometheus-client", "protobuf"} <= differing
    assert {"pandas", "scipy", "pydantic", "typer", "matplotlib"}.isdisjoint(differing)
