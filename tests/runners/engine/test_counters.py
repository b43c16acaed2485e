"""The counters say what happened, and a recompute is never called a hit."""

from __future__ import annotations

from tests.runners.engine.driver import FakeEngine
from tests.runners.engine.scheduling.test_scheduler import tokens


def test_a_cold_request_is_computed_and_stored() -> None:
    engine = FakeEngine(32, host=64, chunk=8)
    engine.run([(tokens(0, 20), 3)])
    assert engine.snapshot() == {
        "steps": 3,
        "computed_tokens": 22,  # the last output token never becomes an input
        "device_hit_tokens": 0,
        "host_hit_tokens": 0,
        "stored_tokens": 16,
        "loaded_tokens": 0,
        "evicted_tokens": 0,
        "host_evicted_tokens": 0,
        "preemptions": 0,
        "recomputed_tokens": 0,
        "swapped_out_tokens": 0,
        "swapped_in_tokens": 0,
        "swapped_out_bytes": 0,
        "swapped_in_bytes": 0,
        "swap_full": 0,
        "copied_blocks": 0,
        "waited_forks": 0,
        "cancelled": 0,
    }


def test_hits_by_tier() -> None:
    engine = FakeEngine(32, host=64, chunk=8)
    prompt = tokens(0, 21)
    engine.run([(prompt, 1)])
    engine.churn(engine.pool.free_blocks - 3)  # 12 tokens stay on the device
    [again] = engine.run([(prompt, 1)])
    assert (again.device_hit, again.host_hit) == (12, 4)  # chunk 8 .. 15 from its middle; 16 .. 20 fill no chunk
    counters = engine.counters
    assert (counters.device_hit_tokens, counters.host_hit_tokens, counters.loaded_tokens) == (12, 4, 4)
    assert counters.computed_tokens == 21 + 5


def test_evictions() -> None:
    engine = FakeEngine(6, host=16, chunk=8)
    engine.run([(tokens(0, 17), 1), (tokens(100, 17), 1)])
    # The second needs 5 blocks: the one never used, the first's last, which is not full, and 3 of its 4 full ones, tail first.
    assert engine.counters.evicted_tokens == 12
    assert engine.counters.host_evicted_tokens == 16
    assert engine.counters.stored_tokens == 32
    evictions = [event for event in engine.journal.events if event["event"] == "evict"]
    assert [(event["device"], event["host"]) for event in evictions] == [(12, 16)]


def test_coming_back_after_a_preemption_is_no_hit() -> None:
    engine = FakeEngine(4)
    a, b = engine.run([(tokens(0, 7), 6), (tokens(100, 7), 6)], concurrency=2)
    counters = engine.counters
    assert (b.preemptions, counters.preemptions) == (1, 1)
    assert (a.device_hit, a.host_hit, b.device_hit, b.host_hit) == (0, 0, 0, 0)
    assert (counters.device_hit_tokens, counters.host_hit_tokens) == (0, 0)
    [resume] = [event for event in engine.journal.events if event["event"] == "resume"]
    assert counters.recomputed_tokens == 8 - int(str(resume["device"]))
    assert counters.computed_tokens == 12 + 12 + counters.recomputed_tokens


def test_coming_back_from_the_host_is_no_hit_either() -> None:
    engine = FakeEngine(4, host=64, chunk=4)
    _, b = engine.run([(tokens(0, 7), 10), (tokens(100, 7), 6)], concurrency=2)
    assert b.preemptions == 1
    [resume] = [event for event in engine.journal.events if event["event"] == "resume"]
    assert resume["host"] == engine.counters.loaded_tokens == 8
    assert (engine.counters.host_hit_tokens, engine.counters.recomputed_tokens) == (0, 0)
    assert b.host_hit == 0


def test_a_look_up_that_waits_for_room_is_counted_once() -> None:
    engine = FakeEngine(6)
    engine.run([(tokens(0, 9), 1)])
    engine.run([(tokens(100, 12), 9), ([*tokens(0, 8), *tokens(50, 5)], 1)], concurrency=2)
    admissions = [event for event in engine.journal.events if event["event"] == "admit"]
    assert len(admissions) == 3
    assert engine.counters.device_hit_tokens == sum(int(str(event["device"])) for event in admissions)


def test_stalls_are_split_and_placed() -> None:
    engine = FakeEngine(4)
    _, b = engine.run([(tokens(0, 7), 6), (tokens(100, 7), 6)], concurrency=2)
    [stall] = b.stalls
    assert stall.after_token == 2
    gap = b.token_times[2] - b.token_times[1]
    assert stall.total_ms == gap * 1e3
    assert stall.waiting_ms + stall.restoring_ms + stall.recomputing_ms + stall.first_step_ms == stall.total_ms


def test_events_tell_the_life_of_a_request_in_order() -> None:
    engine = FakeEngine(4, host=64, chunk=4)
    engine.run([(tokens(0, 7), 10), (tokens(100, 7), 6)], concurrency=2)
    life = [event["event"] for event in engine.journal.events if event.get("request_id") == "1"]
    assert life == ["admit", "store", "store", "preempt", "resume", "load", "catch up", "store", "finish"]
    times = [float(str(event["time_s"])) for event in engine.journal.events]
    assert times == sorted(times)
