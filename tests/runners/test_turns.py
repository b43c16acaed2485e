"""Requests that come after others: each runner sends them when their turn comes, with the answer that was really given."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kvbench.analysis.request_table import FIELDS, request_frame
from kvbench.experiments.composed import load_config
from kvbench.runners.base import Clock, ClosedLoop, FollowUp, ListSource, OpenLoop, Pace, Request, RequestSource, as_source
from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.engine_config import EngineConfig
from kvbench.runners.engine.model.model import Model, load_model
from kvbench.runners.engine.runner import EngineRunner
from kvbench.runners.http.client import Client, Patience, SendReport
from kvbench.runners.http.endpoints.completions import Completions
from kvbench.runners.http.exchange import Exchange
from kvbench.runners.profiles import ENGINE
from kvbench.runners.simulator.prediction import Predictor, in_order
from kvbench.runners.simulator.runner import SimulatorRunner
from kvbench.runners.simulator.simulator import UNKNOWN_OUTPUT, CacheSizes
from kvbench.runs.rates import Rates
from kvbench.runs.records import RequestRecord, digest
from kvbench.runs.run_folder import Run, read_run
from kvbench.session import session
from kvbench.session.watcher import Watcher
from kvbench.testing.fake_script import MODEL, Script
from kvbench.testing.fake_server import FakeServer, serving
from tests.runners.turns import ADDED, OUTPUT, PROMPT, SECOND, Talks, talking, talks

BLOCK = 4
KEPT = (PROMPT + OUTPUT - 1) // BLOCK * BLOCK
"""Tokens of the first turn in full blocks; the last token of an answer has no KV."""


@pytest.fixture(scope="module")
def model(small_model: Path) -> Model:
    return load_model(str(small_model), torch.device("cpu"), torch.float32)


def engine(model: Model, clock: Clock) -> Engine:
    return Engine(model, EngineConfig(64, BLOCK, 256, None, BLOCK), clock)


def measured(model: Model, source: RequestSource, pace: Pace) -> list[RequestRecord]:
    records, clock = list[RequestRecord](), Clock()
    EngineRunner(engine(model, clock), clock).run_pass(source, pace, records.append)
    return records


def tiers(record: RequestRecord) -> tuple[int | None, int | None, int | None]:
    return record.cached_tokens_device, record.cached_tokens_host, record.computed_tokens


def turn(record: RequestRecord) -> tuple[int | None, int | None]:
    return record.key.session, record.key.turn


# The contract.


def test_a_list_is_a_source_without_turns_and_a_source_stays_one() -> None:
    requests = talks(2).first
    source = as_source(requests)
    assert (source.count, list(source.first), source.needs_answers) == (2, requests, False)
    assert list(source.after(requests[0], [1])) == []
    made = talks(1)
    assert as_source(made) is made


# The engine.


@pytest.mark.parametrize("pace", [ClosedLoop(1), ClosedLoop(3), OpenLoop([0.0, 0.0, 0.01])])
def test_the_engine_goes_on_from_what_it_answered(model: Model, pace: Pace) -> None:
    source = talks(3)
    records = measured(model, source, pace)
    assert sorted(map(turn, records)) == [(number, turn) for number in range(3) for turn in (0, 1)]
    alone = engine(model, Clock())
    for first, second in zip(source.first, sorted(source.given, key=lambda request: request.key.session or 0), strict=True):
        sequence = alone.submit("alone", list(first.prompt), OUTPUT)
        while not sequence.finished:
            alone.step()
        assert list(second.prompt[: PROMPT + OUTPUT]) == sequence.tokens
    by_turn = {turn(record): record for record in records}
    for number in range(3):
        assert tiers(by_turn[number, 0]) == (0, 0, PROMPT)
        assert tiers(by_turn[number, 1]) == (KEPT, 0, SECOND - KEPT)
        assert by_turn[number, 0].output_digest == digest(source.given_of(number).prompt[PROMPT : PROMPT + OUTPUT])


@pytest.mark.parametrize("pace", [ClosedLoop(1), ClosedLoop(4)])
def test_the_engine_waits_for_the_last_token_and_the_pause(model: Model, pace: Pace) -> None:
    records = measured(model, talks(2, pause_s=0.05), pace)
    by_turn = {turn(record): record for record in records}
    for number in range(2):
        first, second = by_turn[number, 0], by_turn[number, 1]
        assert first.last_token_s is not None
        assert second.sent_s is not None
        assert first.last_token_s + 0.05 <= second.scheduled_s <= second.sent_s


def test_what_comes_after_several_answers_waits_for_all_and_holds_the_first(model: Model) -> None:
    class Sampled(Talks):
        @property
        def first(self) -> list[Request]:
            return [replace(request, samples=3, temperature=1.0, seed=7) for request in super().first]

    source = Sampled(talks(1).plan, 1)
    records = measured(model, source, ClosedLoop(1))
    assert [record.key.turn for record in records] == [0, 0, 0, 1]
    answer = next(record for record in records if record.key.request_id.endswith("/0"))
    assert answer.output_digest == digest(source.given[0].prompt[PROMPT : PROMPT + OUTPUT])


# The simulator.


def simulated(source: Talks, pace: Pace, rates: Rates | None = None) -> list[RequestRecord]:
    records: list[RequestRecord] = []
    SimulatorRunner(Predictor(ENGINE, CacheSizes(256, BLOCK), rates)).run_pass(source, pace, records.append)
    return records


def test_the_simulator_has_the_hits_of_the_engine(model: Model) -> None:
    known = [(record.key, *tiers(record)) for record in measured(model, talks(3), ClosedLoop(1))]
    assert [(record.key, *tiers(record)) for record in simulated(talks(3), ClosedLoop(1))] == known


def test_the_simulator_makes_equal_answers_to_equal_prompts_and_no_others() -> None:
    source = talks(2)
    requests = list(in_order(source))
    assert [(request.key.session, request.key.turn) for request in requests] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert requests[1].prompt[:PROMPT] == requests[0].prompt
    assert requests[1].prompt[PROMPT : PROMPT + OUTPUT] == [UNKNOWN_OUTPUT] * OUTPUT
    records = simulated(source, ClosedLoop(1)) + simulated(source, ClosedLoop(1))
    assert [tiers(record)[0] for record in records] == [0, KEPT] * 4


def test_simulated_turns_come_when_the_pause_is_over() -> None:
    records = simulated(talks(2, pause_s=0.2), ClosedLoop(1), Rates(1000.0, None, 0.0))
    assert [turn(record) for record in records] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [record.scheduled_s for record in records] == pytest.approx([0.0, 0.01, 0.21, 0.22])
    paced = simulated(talks(2, pause_s=0.2), OpenLoop([0.0, 0.5]), Rates(1000.0, None, 0.0))
    assert [turn(record) for record in paced] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [record.scheduled_s for record in paced] == pytest.approx([0.0, 0.21, 0.5, 0.71])


@pytest.mark.parametrize(("sessions", "pause_s", "exact"), [(3, 0.0, True), (1, 0.5, True), (2, 0.5, False)])
def test_a_prediction_is_exact_where_no_pause_lets_another_go_first(sessions: int, pause_s: float, exact: bool) -> None:
    assert Predictor(ENGINE, CacheSizes(256, BLOCK)).predict(talks(sessions, pause_s), ClosedLoop(1)).exact == exact


# The client.


def send(server: FakeServer, source: Any, pace: Pace, **options: Any) -> tuple[dict[str, tuple[Request, Exchange]], SendReport]:
    ended: dict[str, tuple[Request, Exchange]] = {}
    client = Client(server.url, MODEL, Clock(), **options)
    load = client.run(source, pace, lambda request, exchange: ended.update({request.key.request_id: (request, exchange)}))
    return ended, load


PAUSE_S = 0.06


@pytest.mark.parametrize("pace", [ClosedLoop(1), ClosedLoop(2), ClosedLoop(5), OpenLoop([0.0, 0.01, 0.02])])
def test_the_client_sends_a_turn_after_the_last_token_and_the_pause(pace: Pace) -> None:
    source = talks(3, PAUSE_S)
    with serving(Script(first_token_s=0.01, gap_s=0.002, ending_s=0.02)) as server:
        ended, load = send(server, source, pace)
        bodies, truth = [json.loads(body) for body in server.bodies], server.truth
    assert load.gave_up is None
    assert [exchange.error for _, exchange in ended.values()] == [None] * 6
    assert all(body["return_token_ids"] for body in bodies)
    firsts = [list(request.prompt) for request in source.first]
    seconds = [[*firsts[request.key.session or 0], *range(OUTPUT), *request.prompt[-ADDED:]] for request in source.given]
    assert sorted(body["prompt"] for body in bodies) == sorted(firsts + seconds)
    for request, exchange in ended.values():
        if request.key.turn == 1:
            first = next(one for other, one in ended.values() if (other.key.session, other.key.turn) == (request.key.session, 0))
            before = truth[f"none-r0-p0-{request.key.session}"]
            assert first.last_token_s is not None
            assert exchange.sent_s is not None
            assert first.last_token_s + PAUSE_S <= exchange.scheduled_s <= exchange.sent_s
            assert truth[request.key.request_id].arrival_s >= (before.last_token_s or 0.0) + PAUSE_S
            if pace != ClosedLoop(1) and pace != ClosedLoop(2):
                assert exchange.sent_s < first.last_token_s + PAUSE_S + 0.05  # from the last token, not from the end of the answer
                assert exchange.scheduled_s == first.last_token_s + PAUSE_S


def test_a_closed_loop_has_no_more_in_flight_for_the_turns() -> None:
    with serving(Script(first_token_s=0.02)) as server:
        ended, _ = send(server, talks(4), ClosedLoop(2))
    edges = sorted(edge for _, one in ended.values() for edge in ((one.sent_s or 0.0, 1), (one.end_s, -1)))
    assert max(sum(step for _, step in edges[: count + 1]) for count in range(len(edges))) == 2
    assert len(ended) == 8


def test_a_turn_alone_waits_until_the_one_before_it_is_handed_over() -> None:
    sent: list[int] = []

    def on_end(request: Request, exchange: Exchange) -> None:
        time.sleep(0.01)
        sent.append(server.requests)

    with serving() as server:
        Client(server.url, MODEL, Clock()).run(talks(2), ClosedLoop(1), on_end)
    assert sent == [1, 2, 3, 4]


def test_bodies_of_a_list_are_encoded_before_the_first_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    plain = Completions.encode

    def encode(endpoint: Completions, request: Request, **asked: Any) -> bytes:
        encoded.append(server.requests)
        return plain(endpoint, request, **asked)

    monkeypatch.setattr(Completions, "encode", encode)
    with serving() as server:
        send(server, ListSource(talks(4).first), ClosedLoop(1))
        assert encoded == [0] * 4
        encoded.clear()
        send(server, talks(2), ClosedLoop(1))
        assert encoded == [4, 4, 5, 7]
        assert "return_token_ids" not in json.loads(server.bodies[0])


def test_after_a_request_that_failed_its_session_is_over() -> None:
    with serving(Script(fault="status", fault_every=2)) as server:
        ended, load = send(server, talks(2), ClosedLoop(1))
    assert load.gave_up is None
    kinds = {(request.key.session, request.key.turn): one.error and one.error.kind for request, one in ended.values()}
    assert kinds == {(0, 0): None, (0, 1): "http_status", (1, 0): None, (1, 1): "http_status"}
    with serving(Script(fault="status")) as server:
        ended, _ = send(server, talks(2), ClosedLoop(1))
    assert [request.key.turn for request, _ in ended.values()] == [0, 0]


def test_a_server_that_does_not_tell_its_ids_fails_by_name() -> None:
    with serving(Script(knows_ids=False)) as server:
        ended, _ = send(server, talks(2), ClosedLoop(1))
    assert [one.error and one.error.kind for _, one in ended.values()] == ["no_ids"] * 2


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_run_that_is_given_up_asks_for_no_more_turns(concurrency: int) -> None:
    with serving(Script(fault="status", fault_from=2)) as server:
        ended, load = send(server, talks(5, 0.01), ClosedLoop(concurrency), patience=Patience(failures=2))
        assert server.requests <= 5
    assert load.gave_up is not None
    assert {one.error and one.error.kind for _, one in ended.values()} == {None, "http_status", "not_sent"}


def test_nothing_that_comes_after_another_is_sent_once_a_run_is_given_up() -> None:
    class Stubborn(Talks):
        """Goes on whatever became of the first turn."""

        def after(self, request: Request, answer: Sequence[int] | None) -> list[FollowUp]:
            return super().after(request, answer or [1] * OUTPUT)

    with serving(Script(fault="status")) as server:
        ended, load = send(server, Stubborn(talks(5).plan, 5), ClosedLoop(2), patience=Patience(failures=2))
        assert server.requests == 3
    assert load.gave_up is not None
    assert sorted(str(one.error and one.error.kind) for _, one in ended.values()) == ["http_status"] * 3 + ["not_sent"] * 3


# Whole runs of an experiment that is only registered.


def run_talks(folder: Path, **given: Any) -> Run:
    with talking():
        config = load_config(None, {"experiment": "talk", "tier": "none", **given})
        finished = session.run(config, folder, Watcher(), ["kvbench", "run"])
    assert finished.reasons == []
    return read_run(finished.path)


def hits(run: Run) -> list[tuple[int, int, int, int]]:
    return [(line["pass_index"], line["session"], line["turn"], line["cached_tokens_device"]) for line in run.requests]


def expected(block: int) -> list[tuple[int, int, int, int]]:
    """In the first pass a second turn finds what the first left; in the second pass each finds its whole prompt."""
    cold = (0, (PROMPT + OUTPUT - 1) // block * block)
    warm = ((PROMPT - 1) // block * block, (SECOND - 1) // block * block)
    return [(index, number, turn, hits[turn]) for index, hits in enumerate((cold, warm)) for number in range(3) for turn in (0, 1)]


def test_a_run_on_engine_and_simulator(small_model: Path, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"model": str(small_model), "kv_tokens": 256, "block_size": BLOCK}
    on_engine = run_talks(tmp_path / "engine", dtype="float32", **sizes)
    on_simulator = run_talks(tmp_path / "simulator", runner="simulator", **sizes)
    assert hits(on_engine) == hits(on_simulator) == expected(BLOCK)
    for line in on_engine.passes:
        assert line["prediction"]["exact"]
        assert line["prediction"]["device"] == sum(hit for index, *_, hit in hits(on_engine) if index == line["pass_index"])
    table = request_frame(read_run(on_engine.path, FIELDS))
    assert table["session"].tolist() == [0, 0, 1, 1, 2, 2] * 2
    assert table["turn"].tolist() == [0, 1] * 6


def test_answers_in_16_bits_are_predicted_as_an_estimate(small_model: Path, tmp_path: Path) -> None:
    run = run_talks(tmp_path / "run", model=str(small_model), kv_tokens=256, block_size=BLOCK, dtype="bfloat16")
    assert [line["prediction"]["exact"] for line in run.passes] == [False, False]


def test_a_run_on_a_server(tmp_path: Path) -> None:
    size = 9  # no block holds a part of an answer, of which the fake server's caches know nothing
    with serving(Script(pool_tokens=1800, block_size=size)) as server:
        run = run_talks(tmp_path / "run", runner="vllm", url=(f"none={server.url}",), vocab=1000)
    assert [line["turn"] for line in run.requests] == [0, 1] * 6
    assert [line["prompt_tokens"] for line in run.requests] == [PROMPT, SECOND] * 6
    assert {line["attribution"] for line in run.requests} == {"counters"}
    assert hits(run) == expected(size)


def test_a_run_without_turns_has_neither_field(small_model: Path, tmp_path: Path) -> None:
    config = load_config(None, {"runner": "simulator", "docs": 2, "doc_tokens": 40, "kv_tokens": 256})
    run = read_run(session.run(config, tmp_path / "run", Watcher(), []).path)
    assert {"session", "turn"} & run.requests[0].keys() == set()
    assert {"session", "turn"} & set(request_frame(run).columns) == set()
