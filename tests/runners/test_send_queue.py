"""When requests are sent, on a clock that only moves when the test says so."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.runners.base import Clock, ClosedLoop, FollowUp, ListSource, OpenLoop, Pace, Request
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
    return SendQueue(ListSource(requests), pace, clock)


def sent(waiting: SendQueue) -> list[tuple[int, float]]:
    return [(request.key.position, due) for request, due in waiting.due()]


def end(waiting: SendQueue, position: int, at_s: float = 0.0) -> None:
    waiting.ended(Request(RequestKey("none", 0, "trace", 0, position, str(position), position), [1], 1), None, at_s)


def test_a_closed_loop_keeps_so_many_in_flight_and_schedules_what_it_sends() -> None:
    clock = FakeClock()
    waiting = queue(4, ClosedLoop(2), clock)
    assert sent(waiting) == [(0, 100.0), (1, 100.0)]
    assert sent(waiting) == []
    clock.now = 107.5
    end(waiting, 0)
    assert sent(waiting) == [(2, 107.5)]
    assert len(waiting) == 1
    end(waiting, 2)
    assert sent(waiting) == [(3, 107.5)]
    assert not waiting


def test_an_open_loop_sends_at_its_times_whatever_is_in_flight() -> None:
    clock = FakeClock()
    waiting = queue(4, OpenLoop([0.0, 0.0, 1.5, 2.0]), clock)
    assert sent(waiting) == [(0, 100.0), (1, 100.0)]
    clock.now = 101.4
    assert sent(waiting) == []
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


class Chains(ListSource):
    """Each request below 10 is followed by ten times itself, after its own position in seconds; 1 is followed by 10, a second later."""

    def __init__(self, *positions: int) -> None:
        super().__init__([self.request(position) for position in positions])

    def request(self, position: int) -> Request:
        return Request(RequestKey("none", 0, "turns", 0, position, str(position), position), [1], 1)

    def after(self, request: Request, answer: object) -> list[FollowUp]:
        position = request.key.position
        return [FollowUp(self.request(10 * position), float(position))] if position < 10 else []


def test_what_comes_after_another_is_sent_when_that_has_ended_and_the_pause_is_over() -> None:
    clock = FakeClock()
    waiting = SendQueue(Chains(3), ClosedLoop(4), clock)
    assert sent(waiting) == [(3, 100.0)]
    assert waiting.due_s == float("inf")
    assert not waiting
    clock.now = 120.0
    end(waiting, 3, 119.5)
    assert (len(waiting), waiting.due_s) == (1, 122.5)
    clock.now = 122.4
    assert sent(waiting) == []
    clock.now = 122.6
    assert sent(waiting) == [(30, 122.5)]


def test_a_turn_goes_before_requests_that_begin_a_session() -> None:
    clock = FakeClock()
    waiting = SendQueue(Chains(1, 2, 3), ClosedLoop(1), clock)
    assert sent(waiting) == [(1, 100.0)]
    clock.now = 105.0
    end(waiting, 1, 105.0)
    assert sent(waiting) == [(2, 105.0)]  # the pause is not over
    clock.now = 110.0
    end(waiting, 2, 110.0)
    assert sent(waiting) == [(10, 110.0)]  # due at 106, and there was no room before


def test_a_turn_that_had_room_is_due_when_its_pause_is_over() -> None:
    clock = FakeClock()
    waiting = SendQueue(Chains(1, 5), ClosedLoop(2), clock)
    assert [position for position, _ in sent(waiting)] == [1, 5]
    end(waiting, 1, 100.0)
    clock.now = 103.0
    end(waiting, 5, 103.0)
    assert sent(waiting) == [(10, 101.0)]


def test_in_an_open_loop_turns_go_at_their_time_among_the_others() -> None:
    clock = FakeClock()
    waiting = SendQueue(Chains(1, 2), OpenLoop([0.0, 3.0]), clock)
    assert sent(waiting) == [(1, 100.0)]
    clock.now = 101.0
    end(waiting, 1, 101.0)
    clock.now = 110.0
    assert sent(waiting) == [(10, 102.0), (2, 103.0)]


def test_what_is_drained_is_not_sent() -> None:
    clock = FakeClock()
    waiting = SendQueue(Chains(1, 2, 3), ClosedLoop(1), clock)
    sent(waiting)
    end(waiting, 1, 100.0)
    assert [(request.key.position, due) for request, due in waiting.drain()] == [(2, 100.0), (3, 100.0), (10, 101.0)]
    assert sent(waiting) == []
