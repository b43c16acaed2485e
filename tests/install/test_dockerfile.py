"""The Dockerfile, which cannot be built here: what it names is there, and is what the extra and its constraints say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from kvbench.cli.main import COMMANDS, main
from tests.install.test_vllm_extra import pins

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
LINES = [line for line in TEXT.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]


def arguments(instruction: str) -> list[str]:
    """What stands behind each of these instructions."""
    return [line.partition(" ")[2].strip() for line in LINES if line.startswith(f"{instruction} ")]


def test_it_is_built_from_the_vllm_that_the_constraints_pin() -> None:
    (version,) = arguments("ARG")
    assert version == f"VLLM_VERSION={pins('vllm-constraints.txt')['vllm']}"
    assert arguments("FROM") == ["vllm/vllm-openai:v${VLLM_VERSION}"]
    (run,) = arguments("RUN")
    assert "-c requirements/vllm-constraints.txt '.[engine,vllm]'" in run


def test_what_it_copies_is_there_and_not_ignored() -> None:
    copied = [source for line in arguments("COPY") for source in line.split()[:-1]]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{source}" for source in copied} <= set(ignored)
    wanted = {"pyproject.toml", "kvbench", "README.md", "LICENSE"}  # the build needs the last two by pyproject.toml
    assert wanted <= set(copied)


def test_it_says_that_it_was_not_built() -> None:
    assert "It was not built here" in TEXT


def test_its_commands_are_kvbench_s() -> None:
    (entry,), (default,) = (arguments(name) for name in ("ENTRYPOINT", "CMD"))
    assert json.loads(entry) == ["kvbench"]
    assert json.loads(default)[0] in {command.name for command in COMMANDS}
    shown = re.sub(r"\\\n#\s*", "", TEXT.split("#   docker run")[1].split("\n#\n")[0])
    words = shlex.split(shown.split(" kvbench ")[1])
    assert main([words[0], "--help"]) == 0
    command = next(command for command in COMMANDS if command.name == words[0])
    assert command.load().make_context(words[0], words[1:]).params["runner"] == "vllm"
