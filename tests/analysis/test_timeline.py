"""The phases of requests: disjoint, in order, from the send to the end, and the same times as the stalls that the engine recorded."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.analysis import timeline as names
from kvbench.analysis.timeline import Phase, phases, timelines
from kvbench.cli.main import main
from kvbench.experiments.readings import ExperimentView
from kvbench.reports.timeline import label, marked, timeline_description
from kvbench.runners.base import Clock, ClosedLoop, ListSource, Request
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.transfer import Transfer, make_transfer
from kvbench.runners.engine.runner import EngineRunner
from kvbench.runners.engine.scheduling.preemption import least_computed
from kvbench.runs.records import RequestKey
from kvbench.runs.run_folder import read_run
from kvbench.testing.fake_transfer import DelayedTransfer
from tests.runners.engine.driver import FakeEngine

SIZES = ["--requests", "6", "--prompt-tokens", "20", "--output-tokens", "24", "--kv-tokens", "144", "--block-size", "8"]


@pytest.fixture(scope="module", autouse=True)
def _no_old_garbage() -> None:
    """The runner collects garbage before each pass; what torch left, which is never garbage, would make that 0.4 s each time."""
    gc.freeze()


def delayed(store: KVStore) -> Transfer:
    return DelayedTransfer(make_transfer(store))


def lived(
    requests: int, output: int, transfer: Callable[[KVStore], Transfer] = make_transfer, budget: int = 8, **options: Any
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The record of each request of an engine that runs short, with its events; a second a look at the clock."""
    engine = FakeEngine(9, 4, budget, transfer=transfer, **options)
    runner = EngineRunner(engine, cast(Clock, engine.journal.clock))
    asked = [
        Request(RequestKey("arm", 0, "pass", 0, number, f"r{number}", number), [number * 5 + token for token in range(5)], output)
        for number in range(requests)
    ]
    lines: list[dict[str, Any]] = []
    runner.run_pass(ListSource(asked), ClosedLoop(requests), lambda record: lines.append(record.to_json()))
    events = cast(list[dict[str, Any]], runner.take_events())
    return [(line, [event for event in events if event.get("request_id") == line["request_id"]]) for line in lines]


def spent(found: tuple[Phase, ...], begin: float, end: float) -> dict[str, float]:
    """Seconds by phase between two moments that no phase crosses."""
    inside = [phase for phase in found if phase.begin_s >= begin and phase.end_s <= end]
    assert sum(phase.end_s - phase.begin_s for phase in inside) == pytest.approx(end - begin)
    times: dict[str, float] = {}
    for phase in inside:
        times[phase.name] = times.get(phase.name, 0.0) + phase.end_s - phase.begin_s
    return times


def check(line: dict[str, Any], events: list[dict[str, Any]]) -> tuple[Phase, ...]:
    found = phases(line, events)
    assert (found[0].begin_s, found[-1].end_s) == (line["sent_s"], line["end_s"])
    assert all(phase.end_s > phase.begin_s for phase in found)
    assert all(one.end_s == after.begin_s for one, after in pairwise(found))
    for stall in line["stalls"]:
        times = spent(found, *line["token_times_s"][stall["after_token"] - 1 : stall["after_token"] + 1])
        assert set(times) <= {names.WAITING, names.SWAPPING, names.RESTORING, names.RECOMPUTING, names.FIRST_STEP}
        waited = times.get(names.WAITING, 0.0) + times.get(names.SWAPPING, 0.0)
        parts = [waited, *(times.get(name, 0.0) for name in (names.RESTORING, names.RECOMPUTING, names.FIRST_STEP))]
        told = [stall[f"{part}_ms"] / 1e3 for part in ("waiting", "restoring", "recomputing", "first_step")]
        assert parts == pytest.approx(told, abs=1e-9)
    stalled = {stall["after_token"] for stall in line["stalls"]}
    for token, (begin, end) in enumerate(pairwise(line["token_times_s"]), start=1):
        if token not in stalled:
            assert all(phase.name == names.DECODE for phase in found if phase.begin_s < end and phase.end_s > begin)
    return found


@settings(deadline=None, max_examples=25)
@given(
    st.integers(2, 5),
    st.integers(8, 20),
    st.sampled_from([None, 0, 8, 200]),
    st.booleans(),
    st.sampled_from([make_transfer, delayed]),
    st.booleans(),
    st.booleans(),
)
def test_phases_cover_each_request_and_sum_to_its_stalls(
    requests: int, output: int, swap: int | None, tier: bool, transfer: Callable[[KVStore], Transfer], cached: bool, least: bool
) -> None:
    options: dict[str, Any] = {"victim": least_computed} if least else {}
    for line, events in lived(requests, output, transfer, swap_tokens=swap, host=64 if tier else None, prefix_cache=cached, **options):
        check(line, events)


@pytest.mark.parametrize(
    ("swap", "came_back"),
    [(None, [names.RECOMPUTING]), (200, [names.RESTORING, names.FIRST_STEP])],
    ids=["recompute", "swap"],
)
def test_a_preempted_request_waits_comes_back_and_decodes_on(swap: int | None, came_back: list[str]) -> None:
    found = lived(2, 20, budget=64, swap_tokens=swap, prefix_cache=False)
    line, events = next(item for item in found if item[0]["preemptions"])
    order = [phase.name for phase in check(line, events)]
    first = order.index(names.WAITING)
    assert order[:first][-1] == names.DECODE
    assert [name for name in order[first:] if name not in (names.WAITING, names.SWAPPING)] == [*came_back, names.DECODE]
    assert (names.SWAPPING in order) == (swap is not None)


def test_a_copy_back_that_is_given_up_was_restoring_all_the_same() -> None:
    found = lived(4, 20, delayed, swap_tokens=200)
    [(line, events)] = [item for item in found if any(event["event"] == "swap in stopped" for event in item[1])]
    order = [phase.name for phase in check(line, events)]
    assert names.WAITING in order[order.index(names.RESTORING) :]


def test_what_waits_for_its_first_token_is_queued_then_prefilled() -> None:
    for line, events in lived(4, 4, swap_tokens=None):
        order = [phase.name for phase in check(line, events)]
        assert order[:2] == [names.QUEUED, names.PREFILL]


def test_a_runner_without_events_tells_the_first_token_and_gaps_only() -> None:
    times = [1.0 + 0.01 * token for token in range(10)] + [5.0 + 0.01 * token for token in range(10)]
    line = {
        "sent_s": 0.5, "end_s": 5.2, "token_times_s": times, "chunk_tokens": [1] * 20, "stalls": [], "preemptions": None,
    }  # fmt: skip
    assert phases(line, []) == (
        Phase(names.UNTIL_FIRST, 0.5, 1.0),
        Phase(names.DECODE, 1.0, times[9]),
        Phase(names.GAP, times[9], 5.0),
        Phase(names.DECODE, 5.0, 5.2),
    )


def test_a_request_that_failed_before_its_first_token_is_one_phase() -> None:
    line = {"sent_s": 0.5, "end_s": 2.0, "token_times_s": [], "chunk_tokens": [], "stalls": [], "preemptions": None}
    assert phases(line, []) == (Phase(names.UNTIL_FIRST, 0.5, 2.0),)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> Path:
    out = tmp_path_factory.mktemp("timeline") / "run"
    assert main(["run", "pressure", "--model", str(small_model), *SIZES, "--repeats", "1", "--quiet", "--out", str(out)]) == 0
    return out


def test_every_arm_has_a_timeline_of_the_same_requests_on_the_same_axis(folder: Path) -> None:
    found = timelines(ExperimentView(read_run(folder)))
    assert [item.arm for item in found] == ["ample", "recompute", "swap", "reserve"]
    assert {(len(item.rows), item.requests, item.left_out, item.pass_label) for item in found} == {(6, 6, 0, None)}
    assert len({item.span_s for item in found}) == 1
    assert max(row.phases[-1].end_s for item in found for row in item.rows) == found[0].span_s
    for item in found:
        assert [row.position for row in item.rows] == list(range(6))
        assert min(row.phases[0].begin_s for row in item.rows) == 0
    names_of = {item.arm: {phase.name for row in item.rows for phase in row.phases} for item in found}
    assert names_of["ample"] == {names.QUEUED, names.PREFILL, names.DECODE} == names_of["reserve"]
    assert names_of["recompute"] >= {names.WAITING, names.RECOMPUTING}
    assert names_of["swap"] >= {names.WAITING, names.SWAPPING, names.RESTORING, names.FIRST_STEP}


def test_of_many_requests_those_stay_that_stood_still_longest_and_the_rest_is_counted(folder: Path) -> None:
    run = read_run(folder)
    stalls = {line["position"]: 0.0 for line in run.requests}
    for line in run.requests:
        stalls[line["position"]] = max([stalls[line["position"]], *(stall["total_ms"] for stall in line["stalls"])])
    longest = sorted(stalls, key=lambda position: -stalls[position])[:2]
    for item in timelines(ExperimentView(run), most_rows=2):
        assert [row.position for row in item.rows] == sorted(longest)
        assert (item.left_out, item.requests) == (4, 6)


def test_the_pictures_are_in_the_folder_of_plots_and_in_the_page(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "--plots", str(tmp_path / "plots"), "--format", "html", "-o", str(page)]) == 0
    for arm in ("ample", "recompute", "swap", "reserve"):
        element = ElementTree.parse(tmp_path / "plots" / f"timeline-{arm}.svg").getroot()
        told = {child.tag.rpartition("}")[2]: child.text or "" for child in element[:3]}
        assert told["title"] == f"Timeline of arm {arm}, first repeat"
        assert told["desc"].startswith("6 requests, the last ended after ")
        assert ("The longest stall, " in told["desc"]) == (arm in ("recompute", "swap"))
        assert f'<title id="timeline-{arm}-title">' in page.read_text(encoding="utf-8")


def test_a_run_in_which_nobody_gave_way_has_none(small_model: Path, tmp_path: Path) -> None:
    assert (
        main(["run", "cyclic", "--docs", "2", "--doc-tokens", "32", "--model", str(small_model), "--quiet", "--out", str(tmp_path / "run")])
        == 0
    )
    assert timelines(ExperimentView(read_run(tmp_path / "run"))) == ()


def test_a_dense_stream_is_marked_at_every_so_manieth_token(folder: Path) -> None:
    item = timelines(ExperimentView(read_run(folder)))[1]
    for tokens, every in ((100, 1), (249, 1), (400, 2), (1200, 5), (2400, 10), (30_000, 200)):
        row = replace(item.rows[0], token_times_s=tuple(place / tokens for place in range(tokens)))
        assert marked(replace(item, rows=(row,), span_s=1.0)) == every


def test_the_picture_in_words_names_the_longest_stall_with_its_parts(folder: Path) -> None:
    item = next(item for item in timelines(ExperimentView(read_run(folder))) if item.arm == "recompute")
    line = max(
        (line for line in read_run(folder).requests if line["arm"] == "recompute"),
        key=lambda line: max([0, *(s["total_ms"] for s in line["stalls"])]),
    )
    assert f"is of request {line['position']}: " in timeline_description(item)
    assert label(replace(item.rows[0], request_id="a-r0-p0-3/2", position=3)) == "request 3/2"


def test_events_of_other_requests_and_a_broken_last_line_are_left_out(folder: Path, tmp_path: Path) -> None:
    from kvbench.runs.run_folder import read_events

    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "events.jsonl").write_text("\n".join([*lines[:20], '{"event": "adm']), encoding="utf-8")
    wanted = json.loads(lines[0])["request_id"]
    found = read_events(tmp_path, {wanted})
    assert found == {wanted: [event for event in map(json.loads, lines[:20]) if event.get("request_id") == wanted]}
    assert read_events(tmp_path / "none", {wanted}) == {}
