"""The model that a server serves: where its folder is, and its sizes by ``config.json``. No weights are read.

A named shape has seeded random weights and a tokenizer, written once into the user's cache: a model for a machine without a hub.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import RunFailed, UsageError
from kvbench.models.config import count_of, read_config, text_part
from kvbench.models.kv_rules import KVSize
from kvbench.models.kv_size import kv_size
from kvbench.models.shapes import SHAPES, WEIGHT_SEED
from kvbench.runners.vllm.installation import ask
from kvbench.runners.vllm.tiers import OFFLINE

WRITER = Path(__file__).parents[1] / "engine" / "model" / "save_shape.py"
"""Needs transformers, which the interpreter that serves the model has and kvbench's own need not have."""

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


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/kvbench``, or ``~/.cache/kvbench``."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kvbench"


def resolve_model(model: str, python: Path) -> str:
    """What vLLM is told for ``--model``: the folder of a named shape (:func:`shape_folder`), another's path, or the name."""
    if model in SHAPES:
        return str(shape_folder(model, python))
    return str(Path(model).absolute()) if Path(model).is_dir() else model


def shape_folder(name: str, python: Path, cache: Path | None = None) -> Path:
    """The folder of a named shape; written by ``python`` where it is not there yet, which takes some seconds.

    The folder's name holds a hash of what it was made from. It is made beside its place and moved there whole, so two processes at once,
    or one that is killed, leave a complete folder or none.

    Raises:
        RunFailed: it cannot be written, or the interpreter has no transformers.
    """
    asked = json.dumps({"shape": SHAPES[name], "seed": WEIGHT_SEED}, sort_keys=True)
    digest = hashlib.sha256(asked.encode() + WRITER.read_bytes()).hexdigest()[:12]
    folder = (cache or cache_folder()) / f"{name}-{digest}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    except OSError as error:
        raise RunFailed(f"{folder.parent}: cannot be written ({error.strerror}); XDG_CACHE_HOME names another place") from None
    try:
        ask(python, str(WRITER), asked, {"TQDM_DISABLE": "1"}, str(making))
        making.chmod(0o755)
        making.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was first, with the same content
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder
