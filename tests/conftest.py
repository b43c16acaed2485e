"""Fixtures that several files share."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.folders import save_model, save_tokenizer


def pytest_configure() -> None:
    """A shell starts background jobs with Ctrl-C ignored, and nohup with SIGHUP, children included; tests of these would wait for ever.

    No example is timed: on a busy machine any takes seconds.
    """
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")
    os.environ["COLUMNS"] = "80"  # reports are as wide as the terminal, which is not part of what is tested
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a tokenizer: a run on it takes a fraction of a second."""
    folder = tmp_path_factory.mktemp("models") / "small"
    save_model(folder)
    save_tokenizer(folder)
    # The runner collects garbage before each pass; torch's own objects, which are never garbage, would make that 0.4 s each time.
    gc.freeze()
    return folder
