from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from kvbench.runners.engine.model.model import Model, load_model
from tests.runners.engine.reference import DEVICE, SIZES, Reference, save_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(LlamaConfig(**SIZES), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def model(folder: Path) -> Model:
    return load_model(str(folder), DEVICE, torch.float64)


@pytest.fixture(scope="session")
def reference(folder: Path) -> Reference:
    return Reference(folder)
