"""The list of modes in docs/architecture.md: each has a test on a real server, or says why not, and nothing that is offered is missing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from kvbench.cli.main import COMMANDS
from kvbench.config.settings import flag
from kvbench.experiments.composed import all_fields, compose
from kvbench.experiments.registry import experiments
from kvbench.runners.vllm.tiers import TIERS

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TABLE = (
    (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## What is driven against a real server\n")[1].split("\n## ")[0]
)

OPTION = re.compile(r"(?<![\w-])--[a-z](?:[a-z-]*[a-z])?")
COMMAND = re.compile(r"kvbench (run|plan|serve|doctor|baseline|compare)\b")
SERVER = re.compile(r"--runner vllm|--url\b|--from-server|kvbench serve|kvbench doctor")
SHOWING = {"--out", "--output", "--per-document", "--json", "--quiet", "--color", "--slo", "--help", "--help-all"}
"""Options of `kvbench run` that change what is shown or where it is kept, and nothing of what a server is asked."""


@dataclass(frozen=True)
class Mode:
    """A line of the table; ``tests`` are files and functions."""

    name: str
    form: str
    test: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        return re.findall(r"`(test_\w+\.py)::(\w+)`", self.test)

    @property
    def runs(self) -> bool:
        return not self.test.startswith("not run: ")


MODES = [Mode(*(cell.strip() for cell in line.strip("| ").split(" | "))) for line in TABLE.splitlines() if line.startswith("| ")][2:]


def listed(command: str) -> set[str]:
    """Options that the table has for a command."""
    forms = [form for mode in MODES for form in re.findall(r"`([^`]*)`", mode.form)]
    return {option for form in forms if form.startswith(f"kvbench {command}") for option in OPTION.findall(form)}


@cache
def definitions(file: str) -> dict[str, ast.AST]:
    """What a file of tests defines at its top, and the servers that files share."""
    found: dict[str, ast.AST] = {}
    for name in ("real_servers.py", file):
        for node in ast.parse((HERE / name).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name] = node
            elif isinstance(node, ast.Assign):
                names = [part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)]
                found |= dict.fromkeys(names, node.value)
    return found


def words_of(file: str, function: str) -> str:
    """Every text in a test, and in what it names of its file: helpers, fixtures, constants."""
    known, seen, words = definitions(file), set[str](), list[str]()
    left = [function]
    while left:
        name = left.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        for node in ast.walk(known[name]):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.append(node.value)
            elif isinstance(node, ast.Name):
                left.append(node.id)
            elif isinstance(node, ast.arg):
                left.append(node.arg)
    return "\n".join(words)


def offered() -> Iterator[tuple[str, str, str]]:
    """What the pages show beside a server: page, command (empty: in a paragraph), and option."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace(TABLE, "").replace("\\\n", " ")
        pieces = [line for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE) for line in block.splitlines()]
        pieces += [line for line in text.splitlines() if line.startswith("    kvbench ")]
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        paragraphs = [" ".join(re.findall(r"`[^`]*`", part)) for part in re.split(r"\n\n|\n(?=- |\|)", prose)]
        for piece in filter(SERVER.search, [*pieces, *paragraphs]):
            command = COMMAND.search(piece) if piece in pieces else None  # a paragraph may speak of several
            yield from ((page.name, command[1] if command else "", option) for option in OPTION.findall(piece))


def test_the_table_has_modes() -> None:
    assert len(MODES) > 20
    assert len({mode.name for mode in MODES}) == len(MODES)


@pytest.mark.parametrize("mode", MODES, ids=[mode.name for mode in MODES])
def test_each_mode_has_a_test_on_a_real_server_or_says_why_not(mode: Mode) -> None:
    assert mode.tests or not mode.runs
    for file, function in mode.tests:
        assert re.search(r"^pytestmark = .*pytest\.mark\.real_vllm", (HERE / file).read_text(encoding="utf-8"), re.MULTILINE), file
        assert isinstance(definitions(file).get(function), ast.FunctionDef), function


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.runs], ids=[mode.name for mode in MODES if mode.runs])
def test_the_tests_of_a_mode_use_what_its_command_line_shows(mode: Mode) -> None:
    words = "\n".join(words_of(file, function) for file, function in mode.tests)
    assert {*OPTION.findall(mode.form)} - {*OPTION.findall(words)} == set()
    for command in re.findall(r"`kvbench (\w+)", mode.form):
        assert re.search(rf"\b{command}\b", words)
    for experiment in re.findall(r"`kvbench run ([a-z]+) ", mode.form):
        assert re.search(rf"^{experiment}$", words, re.MULTILINE)
    for tier in re.findall(r"--tier ([a-z,-]+)", mode.form):
        assert set(tier.split(",")) <= {word for words_of_one in words.split() for word in words_of_one.split(",")}


def test_every_tier_is_listed() -> None:
    shown = {tier for mode in MODES for names in re.findall(r"kvbench run [^`]*--tier ([a-z,-]+)", mode.form) for tier in names.split(",")}
    assert shown == set(TIERS)


def test_every_experiment_that_vllm_takes_is_listed_started_and_attached() -> None:
    for attached in (False, True):
        forms = [mode.form for mode in MODES if mode.runs and ("--url" in mode.form) == attached]
        named = {(re.findall(r"kvbench run ([a-z]+) ", form) or ["cyclic"])[0] for form in forms if "kvbench run" in form}
        assert named == on_vllm()


def test_every_option_of_a_run_on_vllm_is_listed() -> None:
    settings = [compose(name, "vllm").settings() for name in on_vllm()]
    wanted = {flag(name) for some in settings for name, setting in some.items() if setting.runners is None or "vllm" in setting.runners}
    own = options("run") - {flag(name) for name in all_fields()} - SHOWING
    assert (wanted | own) - {"EXPERIMENT"} - SHOWING - listed("run") == set()


def on_vllm() -> set[str]:
    return {name for name, experiment in experiments().items() if "vllm" in experiment.runners}


@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_every_option_of_a_command_for_servers_is_listed(command: str) -> None:
    assert options(command) - SHOWING - listed(command) == set()


def options(command: str) -> set[str]:
    """All that a command takes; of a switch, the form that turns it on."""
    loaded = next(item for item in COMMANDS if item.name == command).load()
    return {param.opts[0] for param in loaded.params if param.param_type_name == "option"}


def test_every_option_that_a_page_shows_beside_a_server_is_listed() -> None:
    found = list(offered())
    assert {("README.md", "run", "--question-tokens"), ("README.md", "", "--url"), ("pressure.md", "", "--url")} <= set(found)
    assert {page for page, _, _ in found} >= {"README.md", "pressure.md", "sweeps.md"}
    everywhere = set().union(*(listed(command) for command in ("run", "plan", "serve", "doctor")))
    missing = {item for item in found if item[2] not in (listed(item[1]) if item[1] else everywhere) | SHOWING}
    assert missing == set()
