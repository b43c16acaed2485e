"""A model for a machine without a hub: a named shape with seeded random weights and a tokenizer, written once into the user's cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from kvbench.errors import RunFailed
from kvbench.models.shapes import SHAPES, WEIGHT_SEED
from kvbench.runners.vllm.installation import ask

WRITER = Path(__file__).parents[1] / "engine" / "model" / "save_shape.py"
"""Needs transformers, which the interpreter that serves the model has and kvbench's own need not have."""


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/kvbench``, or ``~/.cache/kvbench``."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kvbench"


def resolve_model(model: str, python: Path) -> str:
    """What vLLM is told for ``--model``: the folder of a named shape, or the name itself; a folder as an absolute path.

    Raises:
        RunFailed: as :func:`shape_folder`.
    """
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
