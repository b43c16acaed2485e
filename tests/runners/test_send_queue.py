"""When requests are sent, on a clock that only moves when the test says so."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.runners.base import Clock, ClosedLoop, OpenLoop, Pace, Request
from kvbench.runners.send_queue import SendQueue
from kvbench.runs.records import RequestKey


class FakeClock(Clock):
    """Stands still until it is moved."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def queue(count: int, pace: Pace, clock: Clock) -> SendQueue:
    requests = [Request(RequestKey("none", 0, "trace", 0, position, str(position), position), [1], 1) for position in range(count)]
    return SendQueue(requests, pace, clock)


def sent(waiting: SendQueue, in_flight: int = 0) -> list[tuple[int, float]]:
    return [(request.key.position, due) for request, due in waiting.due(in_flight)]


def test_a_closed_loop_keeps_so_many_in_flight_and_schedules_what_it_sends() -> None:
    clock = FakeClock()
    waiting = queue(4, ClosedLoop(2), clock)
    assert sent(waiting) == [(0, 100.0), (1, 100.0)]
    assert sent(waiting, in_flight=2) == []
    clock.now = 107.5
    assert sent(waiting, in_flight=1) == [(2, 107.5)]
    assert bool(waiting)
    assert sent(waiting, in_flight=1) == [(3, 107.5)]
    assert not waiting


def test_an_open_loop_sends_at_its_times_whatever_is_in_flight() -> None:
    clock = FakeClock()
    waiting = queue(4, OpenLoop([0.0, 0.0, 1.5, 2.0]), clock)
    assert sent(waiting, in_flight=50) == [(0, 100.0), (1, 100.0)]
    clock.now = 101.4
    assert sent(waiting, in_flight=52) == []
    clock.now = 101.5
    assert sent(waiting) == [(2, 101.5)]


def test_a_request_that_is_sent_late_keeps_the_time_at_which_it_was_due() -> None:
    clock = FakeClock()
    waiting = queue(3, OpenLoop([0.0, 1.0, 2.0]), clock)
    clock.now = 110.0
    assert sent(waiting) == [(0, 100.0), (1, 101.0), (2, 102.0)]
    assert not waiting


def test_waiting_sleeps_exactly_until_the_next_one_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept = FakeClock(), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    waiting = queue(2, OpenLoop([0.0, 30.0]), clock)
    waiting.wait()
    assert sent(waiting) == [(0, 100.0)]
    clock.now = 112.0
    waiting.wait()
    assert sent(waiting) == [(1, 130.0)]
    waiting.wait()
    assert slept == [18.0]


def test_a_closed_loop_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("slept"))
    queue(2, ClosedLoop(1), FakeClock()).wait()


@settings(deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 50), max_size=20).map(sorted), st.lists(st.floats(0, 7), min_size=1, max_size=30))
def test_every_request_is_sent_once_in_order_and_never_early(times: list[float], moves: list[float]) -> None:
    clock = FakeClock()
    waiting = queue(len(times), OpenLoop(times), clock)
    found = []
    for move in [*moves, 60.0]:
        clock.now += move
        for position, due in sent(waiting):
            assert due == 100.0 + times[position] <= clock.now
            found.append(position)
        assert all(100.0 + time > clock.now for time in times[len(found) :])
    assert found == list(range(len(times)))
