"""Every reason not to trust a run, each from a run that is right but for that; and the notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.experiments.readings import ExperimentView
from kvbench.runs.records import PassRecord, PassTotals, RequestError, RequestRecord
from kvbench.summary import validity
from kvbench.summary.validity import notes
from tests.made import CHUNK, Answer, Made, Script, cyclic


def reasons(path: Path, script: Script = cyclic, **made: Any) -> list[str]:
    return validity.reasons(ExperimentView(Made(**made).write(path / "run", script, "invalid")))


def noted(path: Path, script: Script = cyclic, **made: Any) -> str:
    return "\n".join(notes(ExperimentView(Made(**made).write(path / "run", script))))


def test_a_right_run_has_no_reason(tmp_path: Path) -> None:
    assert reasons(tmp_path, repeats=2) == []


def test_a_failed_request(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        return replace(answer, error=RequestError("pool", "does not\nfit")) if (arm, index) == ("none", 2) and doc < 2 else answer

    assert reasons(tmp_path, script) == ["2 of 60 requests failed (pool); the first, none-r0-p2-8: does not fit"]


def warm(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    return Answer(5.0, device=1600) if (arm, index, doc) == ("cpu", 0, 3) else cyclic(arm, repeat, index, position, doc)


def test_a_first_pass_that_was_not_cold(tmp_path: Path) -> None:
    found = reasons(tmp_path, warm)
    assert len(found) == 1
    assert "first pass of arm cpu was not cold: 1 request met cached tokens" in found[0]
    assert "1,600" in found[0]


@pytest.mark.parametrize("config", [{"overlap": 0.5}, {"documents": "/my/files"}])
def test_documents_that_may_share_a_head_explain_a_hit(tmp_path: Path, config: dict[str, Any]) -> None:
    assert reasons(tmp_path, warm, config=config) == []


def test_a_document_read_twice_in_the_first_pass_explains_a_hit(tmp_path: Path) -> None:
    """Position 1 reads document 0 again, as ``zipf`` does."""

    def again(record: RequestRecord) -> RequestRecord:
        key = record.key
        return replace(record, key=replace(key, doc_id=0)) if (key.pass_index, key.position) == (0, 3) else record

    assert reasons(tmp_path, warm, edit=again) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"computed_tokens": 5000}, "tokens by tier (device + host + computed) do not sum to the prompt, in 1 request"),
        (
            {"prompt_tokens_sent": 5011},
            "the prompt as counted is not the prompt as sent, in 1 request (the first, none-r0-p0-4: 5025 of 5011)",
        ),
        ({"output_tokens": 7}, "the output is not --output-tokens long, in 1 request (the first, none-r0-p0-4: 7 of 8)"),
    ],
)
def test_counts_that_contradict_each_other(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    def edit(record: RequestRecord) -> RequestRecord:
        return replace(record, **change) if record.key.request_id == "none-r0-p0-4" else record

    found = reasons(tmp_path, edit=edit)
    assert len(found) == 1
    assert words in found[0]


def test_unknown_tokens_are_no_fault(tmp_path: Path) -> None:
    assert reasons(tmp_path, lambda *_: Answer(5.0, device=None, host=None)) == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda totals, index: replace(totals, counters_after={**totals.counters_after, "requests": 3}),
        lambda totals, index: replace(totals, counters_before={**totals.counters_before, "requests": 0}) if index == 2 else totals,
    ],
)
def test_a_counter_that_went_backwards_is_said_once_an_arm(tmp_path: Path, edit: Callable[[PassTotals, int], PassTotals]) -> None:
    def edit_pass(record: PassRecord) -> PassRecord:
        return replace(record, totals=edit(record.totals, record.pass_index))

    found = reasons(tmp_path, edit_pass=edit_pass)
    assert len(found) == 2
    assert found[0].startswith("counter requests of arm none went backwards, first in repeat 0, pass ")


def never(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    return cyclic("none", repeat, index, position, doc)


@pytest.mark.parametrize("question", ["same", "vary"])
def test_a_tier_that_must_hit_and_never_did(tmp_path: Path, question: str) -> None:
    found = reasons(tmp_path, never, config={"question": question})
    assert found == ["the cpu tier (51,200) holds all that is read (48,640) and gave nothing to pass 1 (repeat), although it must"]


def test_the_smallest_tier_that_must_hit(tmp_path: Path) -> None:
    """19 whole chunks of each of ten documents: what ``--host-gib auto`` makes."""
    assert len(reasons(tmp_path, never, arms={"none": None, "cpu": 48640})) == 1


def test_chunks_with_a_question_in_them_are_written_in_every_pass(tmp_path: Path) -> None:
    """5,100 + 14 + 8 tokens end in a twentieth chunk; over three passes a tier gets 19 + 3 chunks of each document."""
    made = {"document": 5100, "edit": lambda record: replace(record, prompt_tokens=5114, prompt_tokens_sent=5114)}
    sizes = {
        size: len(reasons(tmp_path / str(size), lambda *_: Answer(5.0), arms={"none": None, "cpu": size}, **made))
        for size in (56319, 56320)
    }
    assert sizes == {56319: 0, 56320: 1}


@pytest.mark.parametrize(
    "made",
    [
        {"arms": {"none": None, "cpu": 48639}},  # cannot hold all
        {"device_tokens": 50110},  # fits the pool
        {"config": {"concurrency": 2}},
        {"config": {"reuse": 0.5}},
        {"passes": ("sequential", "reverse")},  # not in order
        {"passes": ("reverse", "repeat")},
        {"document": 2 * CHUNK - 1, "device_tokens": 1024},  # less than two chunks a document
    ],
)
def test_a_tier_that_need_not_hit(tmp_path: Path, made: dict[str, Any]) -> None:
    assert reasons(tmp_path, lambda *_: Answer(5.0), **made) == []


def test_a_tier_need_not_hit_where_the_device_misses_no_whole_chunk(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(5.0, device=4800 if index else 0)

    assert reasons(tmp_path, script, device_tokens=50000) == []


# Notes.


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            {"device_tokens": 60000},
            "fits: the working set (50,110) fits the pool (60,000): no tier can show here; raise --docs or lower --kv-tokens",
        ),
        ({"arms": {"none": None, "cpu": 0}}, "the cpu tier has size zero and stores nothing; raise --host-tokens or --host-gib"),
        ({"arms": {"none": None, "cpu": 255}}, "the cpu tier (255) is smaller than one chunk (256) and stores nothing;"),
        ({"arms": {"none": None, "cpu": 256}}, "the cpu tier (256) is smaller than the longest document (5,011)"),
        ({"config": {"reuse": 0}}, "nothing is read again (--reuse 0)"),
        ({"passes": ("sequential",)}, "there is one pass, so no document is read again; add a pass (--passes sequential,repeat)"),
    ],
)
def test_notes(tmp_path: Path, made: dict[str, Any], words: str) -> None:
    assert words in noted(tmp_path, **made)


def test_a_tier_smaller_than_the_working_set_is_noted_unless_it_hit(tmp_path: Path) -> None:
    words = "the cpu tier (40,000) is smaller than the working set (50,110): read again in order"
    small = {"none": None, "cpu": 40000}
    assert words in noted(tmp_path / "missed", never, arms=small)
    assert words not in noted(tmp_path / "hit", cyclic, arms=small)


def test_no_note_of_a_tier_where_there_is_none(tmp_path: Path) -> None:
    assert noted(tmp_path, arms={"none": None}) == ""


def test_a_truncated_line_is_noted(tmp_path: Path) -> None:
    from kvbench.runs.run_folder import read_run

    path = tmp_path / "run"
    Made(stop_after=35).write(path, cyclic, "interrupted")
    file = path / "requests.jsonl"
    file.write_text(file.read_text()[:-30])
    assert "requests.jsonl: line 35 is truncated and was skipped" in notes(ExperimentView(read_run(path)))
