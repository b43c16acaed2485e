"""Fixtures that tests of several runners share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runners.policies import registered


@pytest.fixture(scope="module")
def fifo_and_mru() -> Iterator[None]:
    """The policies ``fifo`` and ``mru``, in the simulator and in the engine."""
    with registered():
        yield
