"""The run folder: on disk line by line, never overwritten, readable whenever a run stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.runs.records import PassRecord, PassTotals, RequestError, RequestKey, RequestRecord
from kvbench.runs.run_folder import RunFolder, read_manifest, read_run, set_status
from tests.made import Answer, Made, cyclic, make_record

PASS = PassRecord("none", 0, "sequential", 0, 1, 0, 0.5, PassTotals({"steps": 0}, {"steps": 3}, 16, 0, 0, 0))

MANIFEST = Made(arms={"none": None}, passes=["sequential"]).manifest()


def record(position: int = 0, sent: float = 0.0, ttft_ms: float = 5.0, **answer: Any) -> RequestRecord:
    key = RequestKey("none", 0, "sequential", 0, position, f"none-r0-p0-{position}", position)
    return make_record(key, Answer(ttft_ms, **answer), sent)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_line_is_on_disk_when_it_was_appended(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", MANIFEST) as folder:
        for count in (1, 2, 3):
            folder.append_request(record(count))
            folder.append_events([{"event": "finish", "step": count, "time_s": 0.5}])
            assert [line["position"] for line in lines(folder.path / "requests.jsonl")] == list(range(1, count + 1))
            assert len(lines(folder.path / "events.jsonl")) == count
            assert len(read_run(folder.path).requests) == count
        folder.append_pass(PASS)
        assert lines(folder.path / "passes.jsonl")[0]["wall_s"] == 0.5


def test_the_end_of_a_pass_syncs_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").resolve().name))
    with RunFolder(tmp_path / "run", MANIFEST) as folder:
        folder.append_request(record())
        assert synced == []
        folder.append_pass(PASS)
    if Path("/proc/self/fd").exists():
        assert sorted(synced) == ["events.jsonl", "passes.jsonl", "requests.jsonl"]


def test_a_line_has_every_field_of_the_format(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", MANIFEST) as folder:
        folder.append_request(record(error=RequestError("timeout", "no answer", 504)))
    line = lines(tmp_path / "run" / "requests.jsonl")[0]
    assert list(line) == [
        "arm", "repeat", "pass", "pass_index", "position", "request_id", "doc_id",
        "prompt_tokens", "prompt_tokens_sent", "output_tokens",
        "cached_tokens_device", "cached_tokens_host", "computed_tokens", "attribution", "restore_ms", "compute_ms",
        "scheduled_s", "sent_s", "first_token_s", "last_token_s", "end_s", "token_times_s", "chunk_tokens",
        "preemptions", "stalls", "error", "output_digest", "ttft_ms",
    ]  # fmt: skip
    assert line["error"] == {"kind": "timeout", "message": "no answer", "status": 504}
    assert line["ttft_ms"] is None


@given(sent=st.floats(0, 1e6), ttft_ms=st.floats(0, 1e7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ttft_is_first_token_less_sent_exactly(tmp_path_factory: pytest.TempPathFactory, sent: float, ttft_ms: float) -> None:
    path = tmp_path_factory.mktemp("runs") / "run"
    with RunFolder(path, MANIFEST) as folder:
        folder.append_request(record(sent=sent, ttft_ms=ttft_ms))
    line = read_run(path).requests[0]
    assert line["ttft_ms"] == (line["first_token_s"] - line["sent_s"]) * 1e3


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    Made().write(tmp_path / "run", cyclic)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(UsageError, match="exists already, and a run is never overwritten"):
        RunFolder(tmp_path / "run", {})
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        RunFolder(tmp_path / "empty", {})


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written \(Not a directory\)"):
        RunFolder(tmp_path / "file" / "run", {})


def test_parents_are_made(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "a" / "b" / "run", MANIFEST) as folder:
        folder.finish("interrupted")
    assert read_run(tmp_path / "a" / "b" / "run").manifest["status"] == "interrupted"


def test_the_manifest_is_whole_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run", MANIFEST | {"value": 1})
    seen = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append(read_run(tmp_path / "run").manifest["value"])  # the old one, while the new one is written
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    folder.update(value=2)
    folder.update(value=3)
    folder.close()
    assert seen == [1, 2]
    assert read_run(tmp_path / "run").manifest["value"] == 3
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "events.jsonl", "manifest.json", "passes.jsonl", "requests.jsonl",
    ]  # fmt: skip


@pytest.mark.parametrize("status", ["complete", "invalid", "interrupted"])
def test_the_status_and_its_reasons(tmp_path: Path, status: str) -> None:
    with RunFolder(tmp_path / "run", MANIFEST) as folder:
        assert read_run(folder.path).manifest["status"] == "running"
        folder.finish(status, ["why"])
    manifest = read_manifest(tmp_path / "run")
    assert (manifest["format"], manifest["status"], manifest["reasons"]) == ("kvbench.run/1", status, ["why"])


@pytest.mark.parametrize("cut", [1, 2, 40, 200])
def test_a_truncated_last_line_is_named_and_skipped(tmp_path: Path, cut: int) -> None:
    Made(stop_after=35).write(tmp_path / "run", cyclic, "interrupted")
    file = tmp_path / "run" / "requests.jsonl"
    whole = lines(file)
    file.write_text(file.read_text()[:-cut])
    run = read_run(tmp_path / "run")
    if cut == 1:  # only its line end is missing: nothing is lost
        assert (run.requests, run.skipped) == (whole, [])
    else:
        assert run.requests == whole[:-1]
        assert run.skipped == ["requests.jsonl: line 35 is truncated and was skipped"]


def test_a_line_cut_inside_a_character_is_skipped(tmp_path: Path) -> None:
    Made(stop_after=35).write(tmp_path / "run", cyclic, "interrupted")
    file = tmp_path / "run" / "requests.jsonl"
    file.write_bytes(file.read_bytes() + '{"arm":"ä'.encode()[:-1])
    run = read_run(tmp_path / "run")
    assert len(run.requests) == 35
    assert run.skipped == ["requests.jsonl: line 36 is truncated and was skipped"]


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    Made().write(tmp_path / "run", cyclic)
    file = tmp_path / "run" / "requests.jsonl"
    whole = file.read_text().splitlines()
    file.write_text("\n".join([*whole[:7], whole[7][:50], *whole[8:]]) + "\n")
    with pytest.raises(UsageError, match="line 8 is not JSON, or no record; the file was changed after the run"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize("value", ["3", '"arm"', "[]", "null"])
def test_a_line_that_is_no_object_is_an_error(tmp_path: Path, value: str) -> None:
    Made().write(tmp_path / "run", cyclic)
    file = tmp_path / "run" / "requests.jsonl"
    file.write_text(f"{value}\n{file.read_text()}")
    with pytest.raises(UsageError, match="line 1 is not"):
        read_run(tmp_path / "run")


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a run folder \(no manifest.json\)"):
        read_run(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "kvbench.run/2"}')
    with pytest.raises(UsageError, match=r"format is 'kvbench.run/2', this kvbench reads 'kvbench\.run/1'"):
        read_run(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        read_run(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    Made().write(tmp_path / "run", cyclic)
    (tmp_path / "run" / "passes.jsonl").unlink()
    with pytest.raises(UsageError, match=r"passes\.jsonl: cannot be read"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("config", [1], "config: Input should be an object"),
        ("config", [], "config: Input should be an object"),
        ("workload", "x", "workload: Input should be an object"),
        ("environment", [1], "environment: Input should be an object"),
        ("arms", {"none": 1}, "arms: Input should be a valid array"),
        ("arms", ["none"], r"arms\.0: Input should be an object"),
        ("reasons", 3, "reasons: Input should be a valid array"),
        ("arms", [{"command": None}], r"arms\.0\.name: Field required"),
    ],
)
def test_a_manifest_of_the_wrong_shape_is_refused(tmp_path: Path, part: str, value: Any, words: str) -> None:
    path = Made().write(tmp_path / "run", cyclic).path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {part: value}), encoding="utf-8")
    with pytest.raises(UsageError, match=words):
        read_run(path.parent)


def test_passes_without_their_requests_are_refused(tmp_path: Path) -> None:
    path = Made().write(tmp_path / "run", cyclic).path
    (path / "requests.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(
        UsageError,
        match=r"requests\.jsonl: has 0 requests \(0 failed\) of arm none, repeat 0, pass sequential, and passes\.jsonl tells of 10",
    ):
        read_run(path)
    (path / "passes.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match=r"passes\.jsonl: has no arm none, repeat 0"):
        read_run(path)
    set_status(path, "interrupted")
    assert read_run(path).requests == []
