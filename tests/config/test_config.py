"""The configuration: files and manifests read back, which key is wrong, what does not apply, and absurd values."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kvbench.config.settings import flag
from kvbench.errors import UsageError
from kvbench.experiments.composed import compose
from kvbench.experiments.registry import experiments
from tests.configs import loaded
from tests.folders import write_files

RUNS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one tier": {"tier": "none"},
    "tier sizes": {"tier": ["cpu", "none"], "host_tokens": 4096, "chunk_tokens": 128, "block_size": 32},
    "tier in GiB": {"host_gib": 1.5},
    "passes": {"passes": "sequential, shuffle,zipf:1.1", "question": "vary", "reuse": 0.5, "overlap": 0.25},
    "one pass": {"passes": ["sequential"]},
    "no question": {"question_tokens": 0},
    "own documents": {"documents": "texts", "model": "models/own"},
    "engine": {
        "device": "cpu",
        "dtype": "float64",
        "compile": True,
        "max_batch_tokens": 64,
        "kv_tokens": 64,
        "concurrency": 8,
        "repeats": 3,
    },
    "seed": {"seed": 2**63 - 1, "docs": 3, "doc_tokens": 7, "output_tokens": 1},
}


def fails(file: Path | None = None, **given: Any) -> str:
    with pytest.raises(UsageError) as caught:
        loaded(file, given)
    return str(caught.value)


@pytest.mark.parametrize("values", RUNS.values(), ids=RUNS)
def test_a_manifest_gives_the_same_run_again(tmp_path: Path, values: dict[str, Any]) -> None:
    config = loaded(None, values)
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps({"format": "kvbench.run/1", "config": config.resolved(), "status": "complete"}))
    again = loaded(file, {})
    assert again.resolved() == config.resolved()
    assert again.resolved() == config.resolved()


@pytest.mark.parametrize(
    ("values", "given"),
    [
        ({}, {"passes": "sequential"}),  # controls, reuse and question do not apply any more
        ({}, {"tier": "none"}),
        ({}, {"documents": "texts"}),
        ({}, {"runner": "simulator"}),
        ({"docs": 3}, {"runner": "vllm", "url": ["none=http://127.0.0.1:1", "cpu=http://127.0.0.1:2"]}),
    ],
)
def test_what_a_manifest_holds_by_default_is_not_asked_for(tmp_path: Path, values: dict[str, Any], given: dict[str, Any]) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps({"config": loaded(None, values).resolved()}))
    assert loaded(file, given).resolved() == loaded(None, {**values, **given}).resolved()


def test_what_a_manifest_holds_by_choice_must_still_apply(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps({"config": loaded(None, {"controls": True, "device": "cpu"}).resolved()}))
    assert fails(file, passes="sequential") == f"{file}: --controls does not apply: there is no later pass"
    assert fails(file, runner="simulator") == f"{file}: --device does not apply: the runner is simulator (it applies to `--runner engine`)"


def test_a_trace_paced_by_its_concurrency_stays_so(tmp_path: Path) -> None:
    config = loaded(None, {"experiment": "trace", "trace": "requests.jsonl", "concurrency": 1})
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps({"config": config.resolved()}))
    assert not loaded(file, {"seed": 3}).keeps_times


@pytest.mark.parametrize("values", RUNS.values(), ids=RUNS)
def test_toml_says_the_same_as_the_command_line(tmp_path: Path, values: dict[str, Any]) -> None:
    text = "".join(f"{key.replace('_', '-')} = {json.dumps(value)}\n" for key, value in values.items())
    assert tomllib.loads(text) or not values
    file = tmp_path / "run.toml"
    file.write_text(text)
    assert loaded(file, {}) == loaded(None, values)


def test_the_resolved_configuration_has_every_field_that_applies() -> None:
    fields = set(compose("cyclic", "engine").model_fields) - {"rate", "arrivals", "slo"}
    assert set(loaded(None, {}).resolved()) == fields - {"documents", "host_tokens", "link_gbps"}
    assert set(loaded(None, {"tier": "none"}).resolved()) == fields - {
        "documents",
        "host_tokens",
        "host_gib",
        "chunk_tokens",
        "link_gbps",
        "controls",
    }
    own = loaded(None, {"documents": "texts"}).resolved()
    assert set(own) == fields - {"docs", "doc_tokens", "overlap", "reuse", "host_tokens", "link_gbps", "controls"}
    assert own["documents"] == "texts"


def test_what_is_given_goes_over_the_file(tmp_path: Path) -> None:
    file = write_files(tmp_path, {"run.toml": "docs = 4\ndoc_tokens = 100\n"}) / "run.toml"
    config = loaded(file, {"docs": "5"})
    assert (config.docs, config.doc_tokens) == (5, 100)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("docs = 0", "docs: Input should be greater than or equal to 1, or 'auto' (got 0)"),
        ("doc-tokens = 'many'", "doc_tokens: Input should be a valid integer"),
        ("docs = 7.5", "docs: Input should be a valid integer"),
        ("overlap = nan", "overlap: "),
        ("host-gib = nan", "host_gib: Input should be less than or equal to 1000000, or 'auto' (got nan)"),
        ("host-gib = 'big'", "host_gib: "),
        ("tier = []", "tier: "),
        ("tier = ['none', 'none']", "tier: each tier may be named once"),
        ("passes = [1]", "passes"),
        ("passes = 'sequential,sideways'", "passes: 'sideways' is no pass; there are sequential, repeat, reverse, shuffle and zipf:S"),
        ("dosc = 3", "dosc: there is no such key"),
        ("[run]\ndocs = 3", "run: there is no such key"),
        ("model = ''", "model: "),
        ("docs = ", "Invalid value"),
        ("docs = 3\ndocs = 4", "Cannot overwrite a value"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    file = write_files(tmp_path, {"run.toml": text}) / "run.toml"
    said = fails(file)
    assert str(file) in said
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("docs = 0", {"seed": 3}, "{file}: docs: Input should be"),
        ("docs = true", {"seed": 3}, "{file}: --docs: a number or a name is expected"),
        ("max_batch_tokens = 64", {"runner": "simulator"}, "{file}: --max-batch-tokens does not apply: the runner is simulator"),
        ("controls = true", {"passes": "sequential"}, "{file}: --controls does not apply"),
        ("passes = 'sequential'", {"controls": "true"}, "--controls does not apply"),
        ("runner = 'vllm'\nexperiment = 'fragmentation'", {"seed": 3}, "{file}: the experiment fragmentation needs --runner engine"),
        ("runner = 'vllm'", {"experiment": "fragmentation"}, "the experiment fragmentation needs --runner engine"),
        ("runner = 'sglang'", {"seed": 3}, "{file}: runner: Input should be"),
        ("experiment = 'trace'", {"seed": 3}, "{file}: the experiment trace needs --trace FILE"),
        ("docs = 3", {"kv_tokens": 15}, "--kv-tokens 15 holds no block"),
    ],
)
def test_an_error_names_the_file_that_holds_it(tmp_path: Path, text: str, given: dict[str, Any], message: str) -> None:
    file = write_files(tmp_path, {"run.toml": text}) / "run.toml"
    assert fails(file, **given).startswith(message.format(file=file))


@pytest.mark.parametrize("text", ["[]", "{}", '"x"', '{"config": []}', '{"config": null}', "no json", ""])
def test_a_json_file_that_is_no_manifest(tmp_path: Path, text: str) -> None:
    file = write_files(tmp_path, {"manifest.json": text}) / "manifest.json"
    assert fails(file).startswith(f"--config {file}: ")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot be read (No such file or directory)" in fails(tmp_path / "none.toml")
    assert "cannot be read (Is a directory)" in fails(tmp_path)
    assert "cannot be read" in fails(write_files(tmp_path, {"run.toml": b"\xff"}) / "run.toml")


OWN = "--documents brings its own documents"
NO_TIER = "no arm has a cpu tier"


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("docs", {"documents": "texts", "docs": 3}, OWN),
        ("doc_tokens", {"documents": "texts", "doc_tokens": 3}, OWN),
        ("overlap", {"documents": "texts", "overlap": 0.1}, OWN),
        ("reuse", {"documents": "texts", "reuse": 0.1}, OWN),
        ("host_gib", {"tier": "none", "host_gib": "auto"}, NO_TIER),
        ("host_tokens", {"tier": "none", "host_tokens": 0}, NO_TIER),
        ("chunk_tokens", {"tier": "none", "chunk_tokens": 256}, NO_TIER),
        ("host_gib", {"host_tokens": 512, "host_gib": 1}, "--host-tokens gives the size already"),
        ("reuse", {"passes": "sequential", "reuse": 1}, "there is no later pass"),
        ("question", {"passes": "sequential", "question": "same"}, "there is no later pass"),
        ("question", {"question_tokens": 0, "question": "vary"}, "there is no question"),
        ("profile", {"profile": "vllm"}, "the runner is engine"),
        ("calibrate", {"calibrate": "runs/first"}, "the runner is engine"),
        ("max_batch_tokens", {"runner": "simulator", "max_batch_tokens": 64}, "the runner is simulator"),
        ("device", {"runner": "simulator", "device": "cpu"}, "the runner is simulator"),
        ("repeats", {"runner": "simulator", "repeats": 3}, "a prediction is the same every time"),
        ("restore_rate", {"runner": "simulator", "tier": "none", "restore_rate": 5, "prefill_rate": 5}, NO_TIER),
        ("block_size", {"runner": "simulator", "profile": "documents", "block_size": 16}, "the profile documents keeps whole documents"),
        (
            "chunk_tokens",
            {"runner": "simulator", "profile": "documents", "chunk_tokens": 256},
            "the profile documents keeps whole documents",
        ),
    ],
)
def test_an_option_that_does_not_apply_is_wrong_use(name: str, given: dict[str, Any], reason: str) -> None:
    assert fails(**given).startswith(f"{flag(name)} does not apply: {reason}")
    del given[name]
    loaded(None, given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"docs": "0"}, "--docs: Input should be greater than or equal to 1, or 'auto' (got '0')"),
        ({"docs": "-3"}, "--docs: "),
        ({"docs": "1e9"}, "--docs: Input should be a valid integer"),
        ({"doc_tokens": "9" * 30}, "--doc-tokens: "),
        ({"doc_tokens": "9" * 5000}, "--doc-tokens: "),
        ({"question_tokens": "-1"}, "--question-tokens: "),
        ({"output_tokens": "0"}, "--output-tokens: "),
        ({"repeats": "0"}, "--repeats: "),
        ({"concurrency": "0"}, "--concurrency: "),
        ({"seed": "-1"}, "--seed: "),
        ({"seed": str(2**63)}, "--seed: "),
        ({"overlap": "1.01"}, "--overlap: "),
        ({"overlap": "nan"}, "--overlap: "),
        ({"reuse": "-0.1"}, "--reuse: "),
        ({"kv_tokens": "0"}, "--kv-tokens: "),
        ({"block_size": "0"}, "--block-size: "),
        ({"max_batch_tokens": "0"}, "--max-batch-tokens: "),
        ({"host_gib": "inf"}, "--host-gib: "),
        ({"host_gib": "-0.5"}, "--host-gib: "),
        ({"host_tokens": "-1"}, "--host-tokens: "),
        ({"chunk_tokens": "0"}, "--chunk-tokens: "),
        ({"passes": ["zipf:nan"]}, "--passes: 'zipf:nan': the skew of zipf:S is a number above 0"),
        ({"passes": ["zipf:inf"]}, "--passes: "),
        ({"passes": [""]}, "--passes: '' is no pass"),
        ({"model": ""}, "--model: "),
        ({"chunk_tokens": 24}, "--chunk-tokens 24 is not a multiple of --block-size 16"),
        ({"kv_tokens": 15}, "--kv-tokens 15 holds no block of --block-size 16"),
        ({"runner": "simulator", "prefill_rate": 0}, "--prefill-rate: "),
        ({"runner": "simulator", "restore_rate": "inf"}, "--restore-rate: "),
        ({"runner": "simulator", "overhead_ms": -1}, "--overhead-ms: "),
        ({"runner": "simulator", "calibrate": ""}, "--calibrate: the name is empty"),
        ({"runner": "simulator", "prefill_rate": 5}, "--prefill-rate needs --restore-rate too, or --calibrate RUN_DIR"),
        ({"runner": "simulator", "restore_rate": 5}, "--restore-rate needs --prefill-rate too"),
        ({"runner": "simulator", "tier": "none", "overhead_ms": 5}, "--overhead-ms needs --prefill-rate too"),
    ],
)
def test_absurd_values(given: dict[str, Any], message: str) -> None:
    said = fails(**given)
    assert message in said
    assert "\n" not in said


def test_the_help_names_the_pool_of_every_experiment() -> None:
    for experiment in experiments().values():
        own = experiment.options.model_construct(context=None, kv_tokens="auto")
        assert f"auto: {own.pool_tokens:,}" in str(experiment.options.model_fields["kv_tokens"].description)


def test_a_tier_is_not_needed_for_a_chunk_that_would_not_divide() -> None:
    assert loaded(None, {"tier": "none", "block_size": 24}).block_size == 24


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("docs = true", "--docs: a number or a name is expected, not true"),
        ('documents = ""', "--documents: the name is empty"),
        ("doc-tokens = 5\ndoc_tokens = 6", "doc-tokens is given twice, with - and with _"),
        ('tier = ["none"]\nhost-gib = 1.0', "--host-gib does not apply: no arm has a cpu tier"),
    ],
)
def test_a_file_that_may_mean_two_things_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        loaded(file, {})
    assert str(file) in str(caught.value)
