"""The wheel: it holds the whole package and nothing else, and runs where there is no checkout and no engine."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest

import kvbench

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kvbench"
DATA = ROOT / "tests" / "data"

NO_ENGINE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers", "tokenizers", "safetensors", "ray"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
"""
"""The environment has what kvbench itself depends on, and none of the extras."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    return file


def test_it_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    assert wheel.name == f"kvbench-{kvbench.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert held == files
    wanted = {"kvbench/py.typed", "kvbench/reports/formats/page.html.jinja", "kvbench/runners/engine/model/decode_attention.cpp"}
    assert wanted <= held


def test_its_metadata_say_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(names["METADATA"]).decode())
        assert archive.read(names["entry_points.txt"]).decode() == "[console_scripts]\nkvbench = kvbench.cli.main:main\n"
    assert "licenses/LICENSE" in names
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra") or ()) == {"engine", "ray", "test", "vllm"}
    assert {line.split(";")[0] for line in metadata.get_all("Requires-Dist") or () if "extra == 'vllm'" in line} == {
        "vllm<0.33,>=0.32",
        "lmcache<0.6,>=0.5.6",
    }


@dataclass(frozen=True)
class Installed:
    """An environment into which the wheel was installed, and a folder that is no checkout."""

    environment: Path
    folder: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``kvbench`` with these words."""
        return self.call("kvbench", *words)

    def call(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A program of the environment."""
        variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        return subprocess.run(
            [str(self.environment / "bin" / program), *words], cwd=self.folder, env=variables, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a new environment, to which the packages of the tests' own environment are lent, but not the checkout in it."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (site,) = environment.glob("lib/python*/site-packages")
    lent = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "lent.pth").write_text(f"{lent}\n")  # a path in such a file is added as it is: what is installed editable there is not seen
    (site / "sitecustomize.py").write_text(NO_ENGINE)
    return Installed(environment, tmp_path_factory.mktemp("elsewhere"))


def test_it_is_the_one_that_runs(installed: Installed) -> None:
    done = installed.call("python", "-c", "import kvbench; print(kvbench.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(installed.environment)
    done = installed.run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kvbench {kvbench.__version__}\n", "")


@pytest.mark.parametrize(("format", "start"), [("terminal", "cyclic | "), ("json", "{\n"), ("html", "<!DOCTYPE html>")])
def test_it_reports_a_run(installed: Installed, format: str, start: str) -> None:
    done = installed.run("report", str(DATA / "folders" / "cyclic"), "--format", format)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(start)


def test_its_schemas_say_what_those_of_the_checkout_say(installed: Installed) -> None:
    for name in ("run", "summary"):
        here = subprocess.run([sys.executable, "-m", "kvbench", "schema", name], cwd=ROOT, capture_output=True, text=True, check=True)
        assert installed.run("schema", name).stdout == here.stdout


def test_it_compares_plans_and_simulates_without_an_engine(installed: Installed) -> None:
    base = str(DATA / "baselines" / "steady.json")
    assert installed.run("compare", base, base).returncode == 0
    assert installed.run("plan", "--docs", "4").returncode == 0
    assert installed.run("run", "--runner", "simulator", "--docs", "4", "--quiet", "--out", "run").returncode == 0
    assert (installed.folder / "run" / "manifest.json").exists()


def test_without_an_engine_it_says_what_to_install(installed: Installed) -> None:
    done = installed.run("run", "--quiet")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not installed, and the engine needs it; pip install 'kvbench[engine]'" in done.stderr
