"""Arrivals: exact times, the same on every machine."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.workloads.arrivals import at_rate, constant_rate, poisson, replayed
from kvbench.workloads.draws import Draws

rates = st.floats(1e-3, 1e6)
counts = st.integers(0, 50)


def test_a_constant_rate_is_even() -> None:
    assert constant_rate(4, 8.0) == [0.0, 0.125, 0.25, 0.375]


def test_poisson_arrivals_of_seed_0() -> None:
    """These may never change, or runs of two versions measure different work."""
    assert poisson(4, 2.0, Draws(0, "arrivals")) == [0.0, 0.729795074, 1.628512563, 1.940887537]


def test_poisson_arrivals_have_the_rate_and_the_spread_of_one() -> None:
    times = poisson(20_001, 50.0, Draws(3, "arrivals"))
    gaps = [after - before for before, after in pairwise(times)]
    mean = times[-1] / 20_000
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / 20_000)
    assert mean == pytest.approx(1 / 50, rel=0.03)
    assert spread == pytest.approx(mean, rel=0.03)  # exponential: standard deviation = mean
    assert sum(gap > mean for gap in gaps) / 20_000 == pytest.approx(math.exp(-1), abs=0.01)


@given(count=counts, rate=rates, name=st.sampled_from(["constant", "poisson"]))
def test_arrivals_start_at_once_and_never_descend(count: int, rate: float, name: str) -> None:
    times = at_rate(name, count, rate, Draws(1, "arrivals"))
    assert len(times) == count
    assert times[:1] == [0.0][:count]
    assert all(before <= after for before, after in pairwise(times))


def test_the_policies_differ() -> None:
    assert at_rate("constant", 3, 2.0, Draws(0, "arrivals")) == [0.0, 0.5, 1.0]
    assert at_rate("poisson", 3, 2.0, Draws(0, "arrivals")) == poisson(3, 2.0, Draws(0, "arrivals"))


def test_a_trace_starts_at_its_first_arrival_and_is_sped_up() -> None:
    assert replayed([10.0, 10.0, 12.0, 16.0], 4.0) == [0.0, 0.0, 0.5, 1.5]
    assert replayed([]) == []


@pytest.mark.parametrize("times", [[1.0, 0.5], [0.0, math.nan], [math.nan], [math.inf]], ids=str)
def test_a_trace_that_is_no_order_is_refused(times: list[float]) -> None:
    with pytest.raises(ValueError, match="arrival"):
        replayed(times)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="rate of"):
        constant_rate(1, value)
    with pytest.raises(ValueError, match="rate of"):
        poisson(1, value, Draws(0, "arrivals"))
    with pytest.raises(ValueError, match="speedup of"):
        replayed([0.0], value)
