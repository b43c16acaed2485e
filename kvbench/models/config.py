"""What a model's ``config.json`` says, or a named shape: plain data, for whoever needs sizes and no weights."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kvbench.errors import UsageError
from kvbench.models.shapes import SHAPES

TEXT_PARTS = ("text_config", "llm_config", "language_config")


def read_config(model: str) -> dict[str, Any]:
    """The config of a named shape or of a Hugging Face folder; ``UsageError``: there is none, or it cannot be read."""
    if model in SHAPES:
        return SHAPES[model]
    if not Path(model).is_dir():
        raise no_such_model(model)
    try:
        config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--model {model}: its config.json cannot be read ({reason})") from None
    if not isinstance(config, dict):
        raise UsageError(f"--model {model}: its config.json is not an object")
    return config


def no_such_model(model: str) -> UsageError:
    """The error for a model that is neither a folder nor a shape; it says how to get one that has a hub's name."""
    hint = ""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", model):
        folder = model.partition("/")[2]
        hint = f"; kvbench never downloads: run `hf download {model} --local-dir {folder}`, then give --model {folder}"
    return UsageError(f"--model {model}: no such folder, and no named shape (there are {', '.join(SHAPES)}){hint}")


def text_part(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of the text model, which models that also see or hear keep apart."""
    return next((config[name] for name in TEXT_PARTS if isinstance(config.get(name), dict)), config)


def count_of(config: dict[str, Any], model: str, *names: str) -> int:
    """The first of these keys that is there, a count; ``UsageError``: none is, or it is no count."""
    value = next((config[name] for name in names if config.get(name) is not None), None)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"--model {model}: its config.json has no usable {names[0]} ({value!r})")
    return value
