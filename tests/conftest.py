"""Fixtures that several files share."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from folders import save_model, save_tokenizer


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a tokenizer: a run on it takes a fraction of a second."""
    folder = tmp_path_factory.mktemp("models") / "small"
    save_model(folder)
    save_tokenizer(folder)
    # The runner collects garbage before each pass; torch's own objects, which are never garbage, would make that 0.4 s each time.
    gc.freeze()
    return folder
