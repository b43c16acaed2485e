"""The model for a machine without a hub: the engine's own weights in a folder, written once, whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvbench.errors import RunFailed, UsageError
from kvbench.models.shapes import SHAPES
from kvbench.runners.vllm import model
from kvbench.runners.vllm.model import cache_folder, read_facts, resolve_model, shape_folder

PYTHON = Path(sys.executable)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def folder(cache: Path) -> Path:
    return shape_folder("tiny", PYTHON, cache)


def test_the_folder_holds_a_model_that_the_engine_has_too(folder: Path) -> None:
    import torch

    from kvbench.runners.engine.model.model import load_model

    cpu = torch.device("cpu")
    written, drawn = (load_model(name, cpu, torch.float32).network.state_dict() for name in (str(folder), "tiny"))
    assert written.keys() == drawn.keys()
    assert all(torch.equal(written[name], drawn[name]) for name in drawn)


def test_every_token_is_text_and_text_comes_back(folder: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)  # as vLLM reads it
    assert all(tokenizer.decode([token], skip_special_tokens=True) for token in range(2048))
    text = "The capital of France is Paris, isn't it?\nyes 42"
    tokens = tokenizer(text).input_ids
    assert max(tokens) < 2048
    assert tokenizer.decode(tokens) == text
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids == tokens  # as kvbench reads it


def test_its_facts(folder: Path) -> None:
    facts = read_facts(str(folder), "bfloat16", PYTHON)
    assert (facts.vocab, facts.max_tokens, facts.folder, facts.architecture) == (2048, 131072, folder, "Qwen2ForCausalLM")
    assert facts.kv is not None
    assert (facts.kv.bytes_per_token, facts.kv.formula) == (4096, "K and V, 8 layers, 2 KV heads of 64, 2 B")
    wide = read_facts(str(folder), "float32", PYTHON)
    assert wide.kv is not None
    assert wide.kv.bytes_per_token == 8192
    assert read_facts(str(folder), "auto", PYTHON).dtype == "bfloat16"


def test_it_is_used_again(folder: Path, cache: Path) -> None:
    assert shape_folder("tiny", Path("/nowhere/python"), cache) == folder
    assert [path.name for path in cache.iterdir()] == [folder.name]


def test_another_shape_is_another_folder(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", {**SHAPES["tiny"], "num_hidden_layers": 1})
    with pytest.raises(RunFailed, match="/nowhere/python: cannot be asked"):
        shape_folder("tiny", Path("/nowhere/python"), cache)


def test_two_at_once_leave_one_whole_folder(tmp_path: Path) -> None:
    writer = tmp_path / "writer.py"
    writer.write_text("import sys; from pathlib import Path; [(Path(sys.argv[1]) / str(n)).touch() for n in range(200)]; print('{}')")
    code = "import sys; from pathlib import Path; from kvbench.runners.vllm import model; model.WRITER = Path(sys.argv[2]); "
    code += "print(model.shape_folder('tiny', Path(sys.executable), Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(tmp_path / "cache"), str(writer)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = {process.communicate()[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert folders == {str(path) for path in (tmp_path / "cache").iterdir()}
    assert len(list(Path(folders.pop()).iterdir())) == 200


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "writer.py"
    script.write_text("import sys, pathlib; (pathlib.Path(sys.argv[1]) / 'half').touch(); raise ModuleNotFoundError('No module named x')")
    monkeypatch.setattr(model, "WRITER", script)
    with pytest.raises(RunFailed, match="ModuleNotFoundError: No module named x"):
        shape_folder("tiny", PYTHON, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFailed, match=r"cannot be written .*XDG_CACHE_HOME names another place"):
        shape_folder("tiny", PYTHON, tmp_path / "file" / "cache")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert cache_folder() == Path("/c/kvbench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert cache_folder() == Path("/h/.cache/kvbench")


def test_what_vllm_is_told(folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "cache_folder", lambda: cache)
    assert resolve_model("tiny", PYTHON) == str(folder)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert resolve_model("mine", PYTHON) == str(tmp_path / "mine")
    assert resolve_model("org/model", PYTHON) == "org/model"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": None}, "no usable vocab_size"),
    ],
)
def test_a_config_must_tell_what_is_served(folder: Path, tmp_path: Path, changes: dict[str, object], words: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(UsageError, match=words):
        read_facts(str(tmp_path), "auto", PYTHON)


@pytest.mark.parametrize(
    ("changes", "full_attention", "sized"),
    [
        ({}, True, True),
        ({"sliding_window": 128, "use_sliding_window": True, "max_window_layers": 4}, False, True),
        ({"model_type": "nobody_looked"}, False, False),
    ],
)
def test_what_has_no_full_attention_is_served_and_not_foreseen(
    folder: Path, tmp_path: Path, changes: dict[str, object], full_attention: bool, sized: bool
) -> None:
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "layer_types": None, **changes}))
    facts = read_facts(str(tmp_path), "auto", PYTHON)
    assert (facts.full_attention, facts.kv is not None) == (full_attention, sized)


def test_a_model_that_nobody_has_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--model org/none: no such folder, and no such model in the hub's cache"):
        read_facts("org/none", "auto", PYTHON)
