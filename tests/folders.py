"""Made folders: a small model, its tokenizer, and text files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

VOCAB = 128
MAX_TOKENS = 512
SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_TOKENS,
    "initializer_range": 0.2,
}


def save_model(folder: Path) -> None:
    """Write a Qwen2 of two layers with seeded weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(1)
    Qwen2ForCausalLM(Qwen2Config(**SMALL)).save_pretrained(folder)


def save_tokenizer(folder: Path, words: int = VOCAB) -> None:
    """Write a tokenizer that knows the words ``w1`` to ``w127``, each a token of that number; any other word is 0."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    numbers = {"?": 0, **{f"w{number}": number for number in range(1, words)}}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by name, folders too; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def words(*numbers: int) -> str:
    """A text of these tokens."""
    return " ".join(f"w{number}" for number in numbers)


def tree(folder: Path) -> dict[str, Any]:
    """Every path below the folder: what a command left behind."""
    return {path.relative_to(folder).as_posix(): path.is_dir() for path in folder.rglob("*")}
