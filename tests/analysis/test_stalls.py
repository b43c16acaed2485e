"""Stalls: told by the runner, or read off the stream; and the line that says them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvbench.analysis.stalls import Stalls, stalls_of
from kvbench.reports.tables import stall_lines
from kvbench.runs.run_folder import Run


def line(request_id: str, times: list[float], **more: Any) -> dict[str, Any]:
    given = {
        "arm": "none",
        "request_id": request_id,
        "token_times_s": times,
        "chunk_tokens": [1] * len(times),
        "preemptions": None,
        "stalls": [],
    }
    return given | more


def run(requests: list[dict[str, Any]], preemptions: int | None = None) -> Run:
    after = {} if preemptions is None else {"preemptions": 3 + preemptions}
    passes = [{"arm": "none", "counters_before": dict.fromkeys(after, 3), "counters_after": after}]
    return Run(Path("run"), {}, requests, passes, [])


def steady(count: int, gap: float, start: float = 0.0) -> list[float]:
    return [start + place * gap for place in range(count)]


def test_a_gap_far_above_the_requests_own_median_is_a_stall() -> None:
    times = [*steady(5, 0.01), *steady(5, 0.01, 8.0)]
    assert stalls_of(run([line("a", steady(10, 0.01)), line("b", times)], 1), "none") == Stalls(
        "none", 1, 1, False, (8.0 - 0.04) * 1e3, "b", 5
    )


def test_chunks_of_several_tokens_are_counted_by_token() -> None:
    found = stalls_of(run([line("a", [0, 0.01, 0.02, 9.0], chunk_tokens=[4, 3, 2, 1])]), "none")
    assert found is not None
    assert (found.after_token, found.preemptions) == (9, None)


def test_a_gap_is_no_stall_where_the_server_counts_no_preemption() -> None:
    assert stalls_of(run([line("a", [*steady(5, 0.01), *steady(5, 0.01, 8.0)])], 0), "none") is None


def test_what_the_runner_told_goes_before_the_stream() -> None:
    told = [{"after_token": 2, "total_ms": 30.0}, {"after_token": 7, "total_ms": 40.0}]
    found = stalls_of(run([line("a", [0, 0.01, 9.0, 9.01], preemptions=2, stalls=told), line("b", [0.0], preemptions=0)]), "none")
    assert found == Stalls("none", 2, 2, True, 40.0, "a", 7)


def test_nothing_stood_still() -> None:
    assert stalls_of(run([line("a", steady(10, 0.01)), line("b", [0.0]), line("c", [], chunk_tokens=None)], 0), "none") is None


def test_preemptions_that_no_stream_shows_are_said_as_well() -> None:
    found = stalls_of(run([line("a", steady(10, 0.01))], 2), "none")
    assert found == Stalls("none", 2, 0, False)
    assert list(stall_lines([found])) == ["Preemptions on none: 2; gaps above 50 of the request's own medians: 0."]


def test_the_line_names_the_longest() -> None:
    [text] = stall_lines([Stalls("none", 1, 1, False, 8123.4, "none-r0-p0-3", 356)])
    assert text == (
        "Preemptions on none: 1; gaps above 50 of the request's own medians: 1, longest 8,123 ms (none-r0-p0-3, after token 356)."
    )
