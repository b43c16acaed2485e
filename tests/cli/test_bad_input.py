"""Bad input through the command line: one line that says what is wrong, the right exit code, and no folder left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from kvbench.cli.main import main
from tests.folders import SMALL, save_tokenizer, tree, write_files

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the command, so that a folder ``runs`` left behind would be seen."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fails(capsys: Captured, code: int, *arguments: object) -> str:
    """Run ``kvbench run`` with the arguments; it must fail with the code, say one line, and leave no file."""
    before = tree(Path())
    assert main(["run", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kvbench: error: ")
    assert captured.err.count("\n") == 1
    assert "internal error" not in captured.err
    left = {name: is_folder for name, is_folder in tree(Path()).items() if name not in before}
    assert left in ({}, {"runs": True})
    return captured.err.strip()


def config_folder(name: str, **config: object) -> Path:
    return write_files(Path(name), {"config.json": json.dumps(config)})


# Models.


def test_no_such_model(capsys: Captured) -> None:
    error = fails(capsys, 2, "--model", "models/none")
    assert "--model models/none: no such folder, and no named shape (there are tiny, qwen2.5-0.5b" in error


def test_a_file_as_model(capsys: Captured) -> None:
    Path("model.gguf").write_text("")
    assert "--model model.gguf: no such folder" in fails(capsys, 2, "--model", "model.gguf")


def test_a_folder_that_is_no_model(capsys: Captured) -> None:
    write_files(Path("model"), {"readme.md": "no model"})
    assert "--model model: its config cannot be read" in fails(capsys, 2, "--model", "model")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model_type": "nothing-known"}', "{}"])
def test_a_config_that_is_broken(capsys: Captured, text: str) -> None:
    write_files(Path("model"), {"config.json": text})
    assert "--model model: " in fails(capsys, 2, "--model", "model")


def test_an_architecture_without_our_attention_is_refused(capsys: Captured) -> None:
    config_folder("model", model_type="bloom", architectures=["BloomForCausalLM"], vocab_size=64, hidden_size=32, n_layer=2, n_head=2)
    error = fails(capsys, 2, "--model", "model")
    assert "--model model: BloomForCausalLM is refused: the engine runs plain full attention only (LlamaForCausalLM" in error


def test_a_sliding_window_is_refused(capsys: Captured) -> None:
    config_folder("model", model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=4096, **SMALL)
    assert "MistralForCausalLM with a sliding window is refused: its KV is not plain" in fails(capsys, 2, "--model", "model")


def test_quantised_weights_are_refused(capsys: Captured) -> None:
    config_folder(
        "model", model_type="llama", architectures=["LlamaForCausalLM"], quantization_config={"quant_method": "gptq", "bits": 4}, **SMALL
    )
    assert "--model model: quantised weights are refused" in fails(capsys, 2, "--model", "model")


def test_a_config_without_weights(capsys: Captured) -> None:
    config_folder("model", model_type="llama", architectures=["LlamaForCausalLM"], **SMALL)
    assert "--model model: its weights cannot be loaded" in fails(capsys, 2, "--model", "model")


def test_weights_that_are_broken(capsys: Captured, small_model: Path) -> None:
    shutil.copytree(small_model, "model")
    file = Path("model/model.safetensors")
    file.write_bytes(file.read_bytes()[:1000])
    assert "--model model: its weights cannot be loaded" in fails(capsys, 2, "--model", "model")


def test_weights_of_another_size(capsys: Captured, small_model: Path) -> None:
    shutil.copytree(small_model, "model")
    config = json.loads(Path("model/config.json").read_text())
    Path("model/config.json").write_text(json.dumps({**config, "intermediate_size": 128}))
    assert "--model model: its weights have other sizes than its config says" in fails(capsys, 2, "--model", "model")


def test_cuda_where_there_is_none(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    error = fails(capsys, 1, "--device", "cuda")
    assert "--device cuda: this machine or this build of torch has no CUDA device; use --device cpu" in error


# Sizes.


def test_a_document_longer_than_the_pool(capsys: Captured, small_model: Path) -> None:
    error = fails(capsys, 2, "--model", small_model, "--doc-tokens", 300, "--kv-tokens", 256)
    assert "document 0: 314 prompt and 8 output tokens need 21 blocks of 16, the pool has 16 (256 tokens)" in error
    assert "--kv-tokens 336 holds it" in error


def test_the_pool_it_names_does_hold_the_document(capsys: Captured, small_model: Path, tmp_path: Path) -> None:
    sizes = ["--model", str(small_model), "--docs", "1", "--doc-tokens", "300", "--tier", "none", "--passes", "sequential"]
    assert main(["run", *sizes, "--kv-tokens", "336", "--out", str(tmp_path / "run")]) == 0


def test_a_document_longer_than_the_model_was_made_for(capsys: Captured, small_model: Path) -> None:
    error = fails(capsys, 2, "--model", small_model, "--doc-tokens", 500)
    assert "document 0: 514 prompt and 8 output tokens exceed the 512 tokens that model" in error
    assert "shorten the documents" in error


def test_documents_of_an_absurd_length_are_refused_before_they_are_made(capsys: Captured) -> None:
    assert "document 0: 10,000,014 prompt and 8 output tokens exceed" in fails(capsys, 2, "--docs", 100_000, "--doc-tokens", 10_000_000)


def test_one_of_the_own_documents_is_too_long(capsys: Captured, small_model: Path) -> None:
    write_files(Path("texts"), {"a.txt": "w1 w2", "long.txt": "w1 " * 400})
    error = fails(capsys, 2, "--model", small_model, "--documents", "texts", "--kv-tokens", 256)
    assert "document long.txt: 414 prompt and 8 output tokens need 27 blocks of 16" in error


def test_a_pool_that_exceeds_the_memory(capsys: Captured, small_model: Path) -> None:
    error = fails(capsys, 1, "--model", small_model, "--doc-tokens", 100, "--kv-tokens", 10**10)
    assert "device pool 2384.19 GiB" in error
    assert "lower --kv-tokens" in error


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--docs", "-1", "--docs: Input should be greater than or equal to 1, or 'auto' (got '-1')"),
        ("--doc-tokens", "1e99", "--doc-tokens: Input should be a valid integer"),
        ("--kv-tokens", "99999999999999", "--kv-tokens: Input should be less than or equal to 10000000000"),
        ("--host-gib", "-2", "--host-gib: "),
        ("--overlap", "2", "--overlap: Input should be less than or equal to 1"),
        ("--concurrency", "0", "--concurrency: "),
        ("--block-size", "0", "--block-size: "),
        ("--repeats", "many", "--repeats: Input should be a valid integer"),
    ],
)
def test_numbers_that_make_no_sense(capsys: Captured, option: str, value: str, message: str) -> None:
    assert message in fails(capsys, 2, option, value)


# Folders and files.


def test_a_run_folder_that_exists(capsys: Captured) -> None:
    write_files(Path("mine"), {"kept.txt": "precious"})
    assert "--out mine: exists already, and a run is never overwritten; name a new folder" in fails(capsys, 2, "--out", "mine")
    assert Path("mine/kept.txt").read_text() == "precious"


def test_a_run_folder_that_cannot_be_made(capsys: Captured) -> None:
    Path("file").write_text("")
    assert "--out file/run: cannot be written (Not a directory)" in fails(capsys, 2, "--out", "file/run")


def test_a_documents_folder_that_is_not_there(capsys: Captured, small_model: Path) -> None:
    assert "--documents texts: no such folder" in fails(capsys, 2, "--model", small_model, "--documents", "texts")


def test_an_empty_documents_folder(capsys: Captured, small_model: Path) -> None:
    Path("texts").mkdir()
    assert "--documents texts: the folder holds no file" in fails(capsys, 2, "--model", small_model, "--documents", "texts")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n", "texts/b is not UTF-8 text (byte 0)"),
        (b"w1\0w2", "texts/b is not text (it has NUL bytes)"),
        (b"", "texts/b holds no text"),
    ],
)
def test_a_document_that_is_no_text(capsys: Captured, small_model: Path, content: bytes, message: str) -> None:
    write_files(Path("texts"), {"a": "w1 w2", "b": content})
    assert message in fails(capsys, 2, "--model", small_model, "--documents", "texts")


def test_own_documents_need_a_tokenizer(capsys: Captured) -> None:
    write_files(Path("texts"), {"a": "some text"})
    error = fails(capsys, 2, "--documents", "texts")
    assert "--documents needs the model's tokenizer, and tiny/tokenizer.json does not exist" in error


def test_a_tokenizer_of_another_model(capsys: Captured, small_model: Path) -> None:
    shutil.copytree(small_model, "model")
    save_tokenizer(Path("model"), words=1000)
    write_files(Path("texts"), {"a": "w1 w999"})
    assert "vocabulary" in fails(capsys, 2, "--model", "model", "--documents", "texts")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("docs = = 3", "--config run.toml: Invalid value"),
        ("dosc = 3", "run.toml: dosc: there is no such key"),
        ("docs = 'ten'", "run.toml: docs: Input should be a valid integer"),
        ("passes = 'sequential,backwards'", "run.toml: passes: 'backwards' is no pass"),
        ("tier = 'none'\nhost-tokens = 5", "--host-tokens does not apply: no arm has a cpu tier"),
    ],
)
def test_a_broken_config_file(capsys: Captured, text: str, message: str) -> None:
    Path("run.toml").write_text(text)
    assert message in fails(capsys, 2, "--config", "run.toml")
