"""Write a model of a given shape, with seeded random weights and a tokenizer, as a Hugging Face folder.

Run as a script by an interpreter that has transformers, which need not be kvbench's own: a server's has. Nothing of kvbench is imported.

    echo '{"shape": {...}, "seed": 0}' | python save_shape.py FOLDER
"""

from __future__ import annotations

import itertools
import json
import string
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Tokenizer


def save_model(folder: Path, shape: dict[str, Any], seed: int) -> None:
    """Write the weights that the engine draws for this shape and seed, in float32."""
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(**shape)).save_pretrained(folder)


def save_tokenizer(folder: Path, size: int) -> None:
    """Write a tokenizer of so many tokens, each of them text: ASCII characters, pairs of letters, pairs behind a space, and longer pieces.

    Qwen2's own kind (byte-level BPE), as transformers reads no other for a Qwen2. Its vocabulary lacks the bytes above 127: such a token is
    no text by itself, and a server that streams text would hold it back.
    """
    characters = ["\u0120", "\u010a", *(chr(code) for code in range(33, 127))]  # as the kind writes a space and the end of a line
    pairs = [first + second for first, second in itertools.product(string.ascii_lowercase, repeat=2)]
    merges = [(pair[0], pair[1]) for pair in pairs] + [("\u0120", pair) for pair in pairs] + list(itertools.product(pairs, repeat=2))
    merges = merges[: size - len(characters)]
    tokens = [*characters, *(first + second for first, second in merges)]
    Qwen2Tokenizer(vocab={token: number for number, token in enumerate(tokens)}, merges=merges).save_pretrained(folder)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    save_model(Path(sys.argv[1]), asked["shape"], asked["seed"])
    save_tokenizer(Path(sys.argv[1]), asked["shape"]["vocab_size"])
    print(json.dumps({"folder": sys.argv[1]}))
