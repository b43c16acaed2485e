"""What a run does not show: each limit where it holds, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.analysis.logs.logs import read_logs
from kvbench.experiments.readings import ExperimentView
from kvbench.reports.formats import markdown, terminal
from kvbench.reports.formats.json import to_json
from kvbench.runs.records import RequestError, RequestRecord
from kvbench.runs.run_folder import Run
from kvbench.summary.limits import limits
from kvbench.summary.summary import summarise
from tests.made import Answer, Made, cyclic

DEFAULT = [
    "whether it comes out the same again: one repeat gives no interval (--repeats 3)",
    "the slowest requests: a p90 needs 64 of an arm and pass, and there are 10",
    "load: requests ran one at a time (--concurrency, --rate)",
    "documents that differ in length or overlap in part: all have 5,011 tokens and share nothing (--overlap, --documents)",
    "documents that are seldom read again, or asked something else: every later pass reads all, with the same question "
    "(--reuse, --question vary)",
    "long answers: each has 8 tokens (--output-tokens)",
    "a restore over PCIe: device pool and host tier are both RAM here, and a restore is a memory copy",
    "answers that mean anything: the weights of tiny are random (--model)",
    "another machine: it ran on one (made, 2 cores)",
]


def found(run: Run) -> list[str]:
    return list(limits(ExperimentView(run)))


def changed(run: Run, part: str, **fields: Any) -> Run:
    """The run with other fields in a part of its manifest."""
    return replace(run, manifest={**run.manifest, part: {**run.manifest[part], **fields}})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Made().write(tmp_path_factory.mktemp("limits") / "run", cyclic)


def test_the_default_run_has_these_and_no_others(run: Run) -> None:
    assert found(run) == DEFAULT


@pytest.mark.parametrize(
    ("part", "fields", "gone", "new"),
    [
        (
            "config",
            {"concurrency": 4},
            (2,),
            [
                "arrivals that wait for nobody: 4 requests in flight, each sent when another had ended (--rate)",
                "KV that runs out while answers grow: no request was preempted (a smaller --kv-tokens)",
            ],
        ),
        ("config", {"rate": 2.5}, (2,), ["another load: 2.5 requests a second (--rate)"]),
        (
            "config",
            {"overlap": 0.3},
            (3,),
            ["documents that differ in length or overlap in part: all have 5,011 tokens and share the same first 30 % (--documents)"],
        ),
        (
            "config",
            {"documents": "texts", "question": "vary"},
            (3, 4),
            ["documents that are seldom read again: every later pass reads all (--passes)"],
        ),
        ("config", {"reuse": 0.5}, (4,), []),
        ("config", {"passes": ["sequential", "repeat", "zipf:1.1"]}, (4,), []),
        ("config", {"question": "vary"}, (4,), ["documents that are seldom read again: every later pass reads all (--reuse)"]),
        ("config", {"output_tokens": 200}, (5,), []),
        ("environment", {"device": "cuda", "gpu": "NVIDIA H200"}, (6, 8), ["another machine: it ran on one (NVIDIA H200)"]),
        ("model", {"name": "models/large", "parameters": 8_000_000_000}, (7,), []),
        (
            "model",
            {"name": "models/small", "parameters": 134_515_008},
            (7,),
            ["a model of the size that is served: models/small has 134.5 million weights (--model)"],
        ),
        ("model", {"parameters": 6_824_192}, (7,), ["a model of the size that is served: tiny has 6.8 million random weights (--model)"]),
        (
            "config",
            {"url": ["none=http://127.0.0.1:8000"]},
            (8,),
            ["what the servers ran on: of their machine nothing is known, only the client's is recorded"],
        ),
        ("environment", {"cpu": None}, (8,), ["what it ran on: the machine is not recorded"]),
    ],
)
def test_a_limit_goes_when_it_no_longer_holds(run: Run, part: str, fields: dict[str, Any], gone: tuple[int, ...], new: list[str]) -> None:
    kept = [limit for place, limit in enumerate(DEFAULT) if place not in gone]
    assert sorted(found(changed(run, part, **fields))) == sorted(kept + new)


def test_repeats_and_samples_end_the_limits_of_certainty(tmp_path: Path) -> None:
    few = found(Made(repeats=2).write(tmp_path / "few", cyclic))
    assert not any("interval" in limit for limit in few)
    assert "the slowest requests: a p90 needs 64 of an arm and pass, and there are 20" in few
    many = found(Made(repeats=7, passes=("sequential",)).write(tmp_path / "many", cyclic))
    assert "the slowest requests: a p99 needs 662 of an arm and pass, and there are 70" in many


def test_failed_requests_are_no_samples(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(5.0, device=None, error=RequestError("timeout", "none")) if doc else Answer(5.0)

    text = found(Made().write(tmp_path / "run", script))
    assert "the slowest requests: a p90 needs 64 of an arm and pass, and there is 1" in text
    assert not any("where each prompt token" in limit for limit in text)


def test_a_preempted_request_ends_the_limit_of_preemption(tmp_path: Path) -> None:
    def preempted(record: RequestRecord) -> RequestRecord:
        return replace(record, preemptions=1 if record.key.doc_id == 3 else 0)

    def uncounted(record: RequestRecord) -> RequestRecord:
        return replace(record, preemptions=None)

    for name, edit in (("preempted", preempted), ("uncounted", uncounted)):
        text = found(Made(config={"concurrency": 4}, edit=edit).write(tmp_path / name, cyclic))
        assert not any("preempted" in limit for limit in text)


def test_passes_that_did_not_end_are_named(tmp_path: Path) -> None:
    text = found(Made(stop_after=45).write(tmp_path / "run", cyclic, "interrupted"))
    assert "cpu repeat, cpu reverse: not finished" in text


def test_unknown_tokens_are_counted(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(5.0, device=None, host=None) if doc == 0 else cyclic(arm, repeat, index, position, doc)

    assert "where each prompt token came from: unknown for 6 of 60 requests" in found(Made().write(tmp_path / "run", script))


def test_no_tier_no_restore(tmp_path: Path) -> None:
    assert not any("PCIe" in limit for limit in found(Made(arms={"none": None}).write(tmp_path / "run", cyclic)))


def test_a_prediction_has_the_limits_of_its_workload_alone(run: Run) -> None:
    assert found(changed(run, "config", runner="simulator")) == DEFAULT[3:5]


def test_a_trace_at_another_pace_says_so(run: Run) -> None:
    trace = {"trace": "trace.jsonl", "left_out": 0, "prompt_tokens": 50_250, "output_tokens": 80, "span_s": 60.0}
    replayed = changed(changed(run, "workload", **trace), "config", experiment="trace")
    assert not any("pace" in limit for limit in found(replayed))
    assert "the trace at its own pace: it was replayed 10 times as fast (--speedup)" in found(changed(replayed, "config", speedup=10.0))
    closed = changed(replayed, "workload", span_s=None)
    assert any("the trace at its own times" in limit for limit in found(closed))


def test_a_log_is_told_what_it_does_not_say(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("ttft_ms\n1.0\n2.0\n")
    assert found(read_logs([log], {})) == [
        "whether it comes out the same again: one repeat gives no interval",
        "the slowest requests: a p90 needs 64 of an arm and pass, and there are 2",
        "what it ran on: the machine is not recorded",
        "where each prompt token came from: unknown for 2 of 2 requests",
    ]


def test_a_run_without_requests_has_none(tmp_path: Path) -> None:
    assert found(Made(stop_after=0).write(tmp_path / "run", cyclic, "interrupted")) == []


def test_every_format_ends_with_the_limits(run: Run) -> None:
    summary = summarise(run)
    assert list(summary.limits) == DEFAULT
    for text in (terminal.render(summary), markdown.render(summary)):
        *_, before, last = text.strip().split("\n\n")
        assert "".join(before.split()).endswith("".join(f"- {DEFAULT[-1]}".split()))
        assert last.startswith("Run folder: ")
    assert '"limits": [\n    "whether it comes out' in to_json(summary)
