"""What is known of the model that a server serves, from its ``config.json``. No weights are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import RunFailed, UsageError
from kvbench.models.config import count_of, read_config, text_part
from kvbench.models.kv_size import KVSize, kv_size
from kvbench.runners.vllm.installation import ask
from kvbench.runners.vllm.tiers import OFFLINE

_FIND = """
import json, sys
from huggingface_hub import hf_hub_download
print(json.dumps({"file": hf_hub_download(sys.argv[1], "config.json")}))
"""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The sizes of a model as it is served."""

    architecture: str
    vocab: int
    dtype: str
    """Of weights and KV."""

    max_tokens: int | None
    """Longest sequence it was made for, if it says."""

    kv: KVSize | None
    """``None``: its KV is of a kind that has no rule."""

    folder: Path
    """Where its files are; a ``tokenizer.json`` stands there if it has one."""

    @property
    def bytes_per_token(self) -> int | None:
        """KV bytes a token takes; ``None`` where its KV is of a kind that has no rule."""
        return None if self.kv is None else self.kv.bytes_per_token

    @property
    def full_attention(self) -> bool:
        """Whether every layer keeps every token, which is what the profiles are of."""
        return self.kv is not None and not self.kv.notes


def read_facts(model: str, dtype: str, python: Path) -> ModelFacts:
    """The facts of a folder, or of a hub's model in the cache of the interpreter that serves it.

    Args:
        model: the folder or the name.
        dtype: as vLLM is told; ``auto`` is the model's own, and bfloat16 for one of float32, as vLLM 0.32 has it.
        python: asked where a named model is.

    Raises:
        UsageError: there is no such model, or its config cannot be used.
    """
    folder = Path(model)
    if not folder.is_dir():
        try:
            folder = Path(ask(python, _FIND, "", OFFLINE, model)["file"]).parent
        except RunFailed as error:
            raise UsageError(f"--model {model}: no such folder, and no such model in the hub's cache ({error})") from None
    config = read_config(str(folder))
    text = text_part(config)
    own = str(text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype") or "float32")
    served = ("bfloat16" if own == "float32" else own) if dtype == "auto" else dtype
    longest = text.get("max_position_embeddings")
    return ModelFacts(
        architecture=str((config.get("architectures") or ["unknown"])[0]),
        vocab=count_of(text, model, "vocab_size"),
        dtype=served,
        max_tokens=longest if isinstance(longest, int) else None,
        kv=_find_kv(str(folder), served, longest if isinstance(longest, int) else 1),
        folder=folder,
    )


def _find_kv(folder: str, dtype: str, longest: int) -> KVSize | None:
    try:
        return kv_size(folder, dtype, longest)
    except UsageError:  # it can be served all the same
        return None
