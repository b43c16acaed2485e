"""A folder's weights are all its own, and a config that describes no model is one line, at load and through the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from kvbench.cli.main import main
from kvbench.errors import UsageError
from kvbench.runners.engine.model.model import count_parameters, load_model
from tests.runners.engine.reference import DEVICE, SIZES, save_model


def edit_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def drop(folder: Path, unwanted: Callable[[str], bool]) -> None:
    """Take weights out of a folder."""
    file = folder / "model.safetensors"
    kept = {name: weight for name, weight in load_file(file).items() if not unwanted(name)}
    save_file(kept, file, {"format": "pt"})


def refusal(folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        load_model(str(folder), DEVICE, torch.float32)
    message = str(caught.value)
    assert message.startswith(f"--model {folder}: ")
    assert "\n" not in message
    return message


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy of the model folder, whose embeddings are not tied."""
    return Path(shutil.copytree(folder, tmp_path / "own"))


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    return save_model(LlamaConfig(**{**SIZES, "tie_word_embeddings": True}), tmp_path / "tied")


def test_a_layer_without_weights_is_refused(own: Path) -> None:
    drop(own, lambda name: ".layers.1." in name)
    assert "its weights lack model.layers.1.input_layernorm.weight (and 8 more); complete the folder" in refusal(own)


def test_a_single_weight_that_is_missing_is_named(own: Path) -> None:
    drop(own, lambda name: name == "model.norm.weight")
    assert "its weights lack model.norm.weight; " in refusal(own)


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"num_hidden_layers": 3}, "model.layers.2.input_layernorm.weight (and 8 more)"),
        ({"attention_bias": True}, "model.layers.0.self_attn.k_proj.bias (and 7 more)"),
        ({"model_type": "gpt2"}, "transformer.h.0."),
    ],
    ids=str,
)
def test_a_config_that_asks_for_more_than_there_is_is_refused(own: Path, changes: dict[str, Any], first: str) -> None:
    edit_config(own, **changes)
    assert f"its weights lack {first}" in refusal(own)


def test_a_tied_output_layer_is_not_missing(tied: Path) -> None:
    assert "lm_head.weight" not in load_file(tied / "model.safetensors")
    one, other = (load_model(str(tied), DEVICE, torch.float32) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.network.parameters(), other.network.parameters(), strict=True))
    assert one.parameters == count_parameters(str(tied))


def test_an_output_layer_that_is_not_tied_is_missing(tied: Path) -> None:
    edit_config(tied, tie_word_embeddings=False)
    assert "its weights lack lm_head.weight; " in refusal(tied)


def test_tied_embeddings_that_are_both_missing_are_refused(tied: Path) -> None:
    drop(tied, lambda name: "embed_tokens" in name)
    assert "its weights lack lm_head.weight (and 1 more)" in refusal(tied)


def test_rotary_buffers_of_an_old_checkpoint_are_neither_missing_nor_needed(own: Path) -> None:
    plain = load_model(str(own), DEVICE, torch.float32)
    file = own / "model.safetensors"
    save_file({**load_file(file), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}, file, {"format": "pt"})
    with_buffers = load_model(str(own), DEVICE, torch.float32)
    assert with_buffers.parameters == plain.parameters


BAD = [
    ({"hidden_size": "abc"}, "'hidden_size' expected int, got str (value: 'abc')"),
    ({"max_position_embeddings": None}, "'max_position_embeddings' expected int, got NoneType"),
    ({"layer_types": ["full_attention"]}, "`num_hidden_layers` (2) must be equal to the number of `layer_types` (1)"),
    ({"num_attention_heads": 0}, "(ZeroDivisionError: integer modulo by zero)"),
    ({"num_key_value_heads": 0}, "(ZeroDivisionError: "),
    ({"rope_parameters": {"rope_type": "nope", "rope_theta": 1e4}}, "(KeyError: 'nope')"),
    ({"hidden_act": "zzz"}, "(KeyError: 'zzz')"),
    ({"intermediate_size": -1}, "(RuntimeError: Trying to create tensor with negative dimension -1"),
    ({"pad_token_id": 99_999}, "(AssertionError: Padding_idx must be within num_embeddings)"),
    ({"dtype": "zzz"}, "(AttributeError: module 'torch' has no attribute 'zzz')"),
    ({"vocab_size": 10**30}, "(TypeError: "),
    ({"vocab_size": -1}, "vocab_size is -1 in its config"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0 in its config"),
    ({"max_position_embeddings": 0}, "max_position_embeddings is 0 in its config"),
    ({"architectures": 5}, "5 is refused"),
]


@pytest.mark.parametrize(("changes", "words"), BAD, ids=lambda part: str(part) if isinstance(part, dict) else "")
def test_a_config_that_describes_no_model_is_one_line(
    own: Path, changes: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_config(own, **changes)
    assert words in refusal(own)
    with pytest.raises(UsageError) as caught:
        count_parameters(str(own))
    assert str(caught.value) == refusal(own)
    out = own.parent / "out"
    assert main(["run", "--model", str(own), "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"kvbench: error: {caught.value}\n"
    assert not out.exists()


def test_transformers_says_nothing_of_a_config_beside_the_one_line(folder: Path) -> None:
    transformers.logging.set_verbosity_warning()
    count_parameters(str(folder))
    assert transformers.logging.get_verbosity() == transformers.logging.ERROR
