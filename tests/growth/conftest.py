"""The additions, for one test at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.growth.additions import grown


@pytest.fixture
def additions() -> Iterator[None]:
    """There is an experiment ``dialogue``, a metric ``second_hits``, a policy ``fifo``, an endpoint ``signed``, a format ``said``."""
    with grown():
        yield
