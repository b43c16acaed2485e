"""``kvbench schema``: the schemas hold for every file that kvbench writes, old ones in ``tests/data`` and new ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from jsonschema import Draft202012Validator

from kvbench.cli.main import main
from kvbench.cli.schema import names, schema_named
from kvbench.runners.base import ArmSetup
from kvbench.runs.manifest_types import ManifestArm
from kvbench.runs.run_folder import read_run
from kvbench.summary.summary import summarise
from kvbench.testing.fake_script import Script
from kvbench.testing.fake_server import serving
from tests.formats.schemas import faults, faults_of_folder, lines_of, validator

DATA = Path(__file__).parents[1] / "data"
FOLDERS = sorted(file.parent for file in (DATA / "folders").rglob("manifest.json"))
SWEEPS = sorted((DATA / "folders").rglob("sweep.json"))
BASELINES = [file for file in sorted((DATA / "baselines").glob("*.json")) if file.stem != "format-1"]
Captured = pytest.CaptureFixture[str]


def label(path: Path) -> str:
    return path.relative_to(DATA).as_posix()


@pytest.mark.parametrize("name", names())
def test_each_is_a_schema_that_the_command_prints(name: str, capsys: Captured, tmp_path: Path) -> None:
    assert main(["schema", name]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == schema_named(name)
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(printed)
    assert main(["schema", name, "-o", str(tmp_path / "schema.json")]) == 0
    assert json.loads((tmp_path / "schema.json").read_text(encoding="utf-8")) == printed


# What lies in tests/data.


@pytest.mark.parametrize("folder", FOLDERS, ids=label)
def test_the_folders_hold_what_the_schemas_say(folder: Path) -> None:
    assert faults_of_folder(folder) == []


@pytest.mark.parametrize("folder", FOLDERS, ids=label)
def test_their_summaries_do_too(folder: Path) -> None:
    whole = summarise(read_run(folder), per_document=True, per_repeat=True).to_json()
    assert faults("summary", json.loads(json.dumps(whole))) == []


@pytest.mark.parametrize("file", SWEEPS, ids=label)
def test_the_sweeps(file: Path) -> None:
    assert faults("sweep", json.loads(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("file", BASELINES, ids=label)
def test_the_baselines(file: Path) -> None:
    assert faults("baseline", json.loads(file.read_text(encoding="utf-8"))) == []


def test_a_whole_folder_is_one_object() -> None:
    folder = DATA / "folders" / "pressure"
    lines = {name: list(lines_of(folder / name)) for name in ("requests.jsonl", "passes.jsonl", "events.jsonl")}
    whole = {"manifest.json": json.loads((folder / "manifest.json").read_text(encoding="utf-8")), **lines}
    assert faults("run", whole) == []
    del whole["requests.jsonl"][3]["ttft_ms"]
    assert faults("run", whole) == ["requests.jsonl.3: 'ttft_ms' is a required property"]


def test_together_they_have_every_event_and_every_field() -> None:
    """A field that no run has would be a field that nothing is known to write."""
    seen: dict[str, set[str]] = {"request": set(), "pass": set(), "event": set()}
    events = set()
    for folder in FOLDERS:
        for file, name in (("requests.jsonl", "request"), ("passes.jsonl", "pass"), ("events.jsonl", "event")):
            for line in lines_of(folder / file):
                seen[name] |= line.keys()
                events |= {line["event"]} if name == "event" else set()
    assert schema_named("request")["properties"].keys() - seen["request"] == {"session", "turn"}
    assert schema_named("pass")["properties"].keys() - seen["pass"] == {"quiesce_s", "counters_unread"}
    assert schema_named("event")["properties"].keys() == seen["event"]
    assert set(schema_named("event")["properties"]["event"]["enum"]) - events == {"cancel", "swap in stopped"}


def test_an_arm_of_the_manifest_has_every_field_of_its_setup() -> None:
    written = get_type_hints(ManifestArm)
    assert {name: written.get(name) for name in get_type_hints(ArmSetup)} == get_type_hints(ArmSetup)


# What is made now.

SIZES = ("--docs", "3", "--doc-tokens", "100", "--kv-tokens", "256", "--block-size", "4", "--chunk-tokens", "16")
SHORT = ("--prompt-tokens", "16", "--output-tokens", "12", "--requests", "4")
MADE = {
    "cyclic": ("cyclic", *SIZES, "--repeats", "2"),
    "controls": ("cyclic", *SIZES, "--controls"),
    "trace": ("trace", "--trace", str(DATA / "own_requests.jsonl"), "--kv-tokens", "512", "--block-size", "4", "--chunk-tokens", "16"),
    "pressure": ("pressure", *SHORT, "--block-size", "4", "--kv-tokens", "64"),
    "crossover": ("pressure", "--context", "64", "--block-size", "4"),
    "fragmentation": ("fragmentation", *SHORT, "--kv-tokens", "256", "--max-length", "40", "--block-sizes", "4,8"),
    "sharing": ("sharing", "--requests", "2", "--prompt-tokens", "16", "--output-tokens", "6", "--n", "2", "--beams", "2"),
    "simulator": ("cyclic", "--runner", "simulator", "--prefill-rate", "8000", "--restore-rate", "90000", "--docs", "3"),
}


@pytest.fixture(scope="module")
def make(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Runs a command line into a new folder."""

    def run(*words: str) -> Path:
        out = tmp_path_factory.mktemp("runs") / "run"
        model = () if "simulator" in words else ("--model", str(small_model))
        assert main(["run", *words, *model, "--quiet", "--out", str(out)]) in (0, 4)  # a test's machine may be too busy for the times
        return out

    return run


@pytest.mark.parametrize("words", MADE.values(), ids=MADE)
def test_a_run_writes_what_the_schemas_say(words: tuple[str, ...], make: Callable[..., Path], capsys: Captured) -> None:
    folder = make(*words)
    capsys.readouterr()
    assert faults_of_folder(folder) == []
    assert main(["report", str(folder), "--format", "json", "--per-document", "--per-repeat"]) == 0
    assert faults("summary", json.loads(capsys.readouterr().out)) == []
    assert main(["baseline", str(folder)]) in (0, 4)
    if text := capsys.readouterr().out:
        assert faults("baseline", json.loads(text)) == []


@pytest.fixture
def servers() -> Iterator[list[str]]:
    """The addresses of a server without a tier and one with."""
    scripts = {"none": Script(pool_tokens=1600, block_size=16), "cpu": Script(pool_tokens=1600, block_size=16, host_tokens=4096)}
    with ExitStack() as stack:
        yield [f"{arm}={stack.enter_context(serving(script)).url}" for arm, script in scripts.items()]


def test_a_run_on_servers_writes_what_the_schemas_say(servers: list[str], tmp_path: Path, capsys: Captured) -> None:
    urls = [word for url in servers for word in ("--url", url)]
    sizes = ["--docs", "3", "--doc-tokens", "600", "--vocab", "1000", "--output-tokens", "4", "--concurrency", "2"]
    assert main(["run", "--runner", "vllm", "--tier", "none,cpu", *urls, *sizes, "--quiet", "--out", str(tmp_path / "run")]) in (0, 4)
    assert faults_of_folder(tmp_path / "run") == []


def test_a_sweep_writes_what_the_schemas_say(tmp_path: Path, capsys: Captured) -> None:
    words = ["run", "--runner", "simulator", *SIZES, "--sweep", "reuse=0,1", "--quiet", "--out", str(tmp_path / "sweep")]
    assert main(words) == 0
    assert faults("sweep", json.loads((tmp_path / "sweep" / "sweep.json").read_text(encoding="utf-8"))) == []
    assert [faults_of_folder(folder) for folder in sorted((tmp_path / "sweep").iterdir()) if folder.is_dir()] == [[], []]


PLANS = {
    "sizes": (),
    "rates": ("--prefill-rate", "8700", "--restore-rate", "570000", "--overhead-ms", "30"),
    "no-tier": ("--kv-tokens", "600000"),
    "calibrated": ("--calibrate", str(DATA / "folders" / "cyclic"), "--restore-rate", "9e5"),
    "trace": ("--trace", str(DATA / "mooncake_conversation_excerpt.jsonl"), "--kv-tokens", "100000", "--window", "60"),
}


@pytest.mark.parametrize("words", PLANS.values(), ids=PLANS)
def test_a_plan_is_what_the_schema_says(words: tuple[str, ...], capsys: Captured) -> None:
    assert main(["plan", *words, "--format", "json"]) == 0
    assert faults("plan", json.loads(capsys.readouterr().out)) == []


# What the schemas refuse.

CYCLIC = DATA / "folders" / "cyclic"
MANIFEST: dict[str, Any] = json.loads((CYCLIC / "manifest.json").read_text(encoding="utf-8"))
REQUEST: dict[str, Any] = next(lines_of(CYCLIC / "requests.jsonl"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("manifest", MANIFEST | {"format": "kvbench.run/2"}),
        ("manifest", MANIFEST | {"status": "done"}),
        ("manifest", MANIFEST | {"config": MANIFEST["config"] | {"docs": "many"}}),
        ("manifest", MANIFEST | {"arms": [{"name": "none"}]}),
        ("request", REQUEST | {"ttft_ms": "fast"}),
        ("request", REQUEST | {"stalls": None}),
        ("request", {key: value for key, value in REQUEST.items() if key != "end_s"}),
        ("summary", {"format": "kvbench.summary/1"}),
    ],
)
def test_what_is_otherwise_is_refused(name: str, value: dict[str, Any]) -> None:
    assert not Draft202012Validator(schema_named(name)).is_valid(value)


def test_a_field_that_came_later_is_none_of_a_reader_s_business() -> None:
    assert Draft202012Validator(schema_named("request")).is_valid(REQUEST | {"new_field": 1})
    assert Draft202012Validator(schema_named("manifest")).is_valid(MANIFEST | {"new_part": {}})


def test_a_request_of_the_first_runs_has_no_digest() -> None:
    line = {key: value for key, value in REQUEST.items() if key != "output_digest"}
    assert validator("request").is_valid(line)


@pytest.mark.parametrize("name", ["manifest", "request", "pass", "event", "sweep"])
def test_every_field_of_a_run_folder_says_what_it_means(name: str) -> None:
    schema = schema_named(name)
    silent = [key for key, part in schema["properties"].items() if not part.get("description")]
    assert silent == []
