"""Made runs of ``pressure``: every figure of a row, what the sentences say, and when a run is invalid."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.analysis.stalls import Split, StallTimes
from kvbench.experiments.pressure.metrics import PressureRow
from kvbench.reports.formats import terminal
from kvbench.reports.formats.csv import to_csv
from kvbench.runs.records import PassRecord, PassTotals, RequestKey, RequestRecord, Stall, digest
from kvbench.runs.run_folder import RunFolder, read_run
from kvbench.summary.summary import Summary, summarise

COUNTERS = {
    "preemptions": 0, "recomputed_tokens": 0, "computed_tokens": 40, "swapped_out_bytes": 0, "swapped_in_bytes": 0, "swap_full": 0,
}  # fmt: skip
Edit = Callable[[RequestRecord], RequestRecord]


def twice(arms: Mapping[str, Arm]) -> dict[str, Arm]:
    """The same in two repeats."""
    return {name: replace(arm, wall_s=arm.wall_s * 2) for name, arm in arms.items()}


@dataclass
class Arm:
    """What a made arm measures: four requests of 8 + 3 tokens, in so many seconds a repeat; ``edit`` changes its requests."""

    wall_s: tuple[float, ...] = (1.0,)
    counters: Mapping[str, int] = field(default_factory=dict)
    peak: int | None = 4
    edit: Edit = lambda record: record
    pool: int | None = None


def made_request(arm: str, repeat: int, position: int) -> RequestRecord:
    """Tokens at 0.1, 0.2 and 0.4 s."""
    return RequestRecord(
        key=RequestKey(arm, repeat, "pressure", 0, position, f"{arm}-r{repeat}-p0-{position}", position),
        prompt_tokens=8,
        prompt_tokens_sent=8,
        output_tokens=3,
        cached_tokens_device=0,
        cached_tokens_host=0,
        computed_tokens=8,
        attribution="engine",
        restore_ms=0.0,
        compute_ms=None,
        scheduled_s=0.0,
        sent_s=0.0,
        first_token_s=0.1,
        last_token_s=0.4,
        end_s=0.4,
        token_times_s=[0.1, 0.2, 0.4],
        chunk_tokens=[1, 1, 1],
        preemptions=0,
        output_digest=digest([position, 1, 2]),
    )


def stalled(record: RequestRecord) -> RequestRecord:
    """The second gap is a stall."""
    return replace(record, preemptions=1, stalls=[Stall(2, 200.0, 150.0, 0.0, 50.0, 0.0)])


def swapped(record: RequestRecord) -> RequestRecord:
    """The second gap is a stall, of requests 0 and 1; the first of them waited longer."""
    parts = {0: (180.0, 5.0, 0.0, 15.0), 1: (100.0, 25.0, 0.0, 75.0)}.get(record.key.position)
    return record if parts is None else replace(record, preemptions=1, stalls=[Stall(2, 200.0, *parts)])


DEFAULT = {
    "ample": Arm((1.0,), {}, pool=64),
    "recompute": Arm((2.0,), {"preemptions": 4, "recomputed_tokens": 20, "computed_tokens": 80}, edit=stalled),
    "swap": Arm((1.5,), {"preemptions": 2, "swapped_out_bytes": 4 << 20, "swapped_in_bytes": 3 << 20}, edit=swapped),
    "reserve": Arm((4.0,), {}, peak=2),
}


def made(folder: Path, arms: Mapping[str, Arm] = DEFAULT, dtype: str = "float32", device: str = "cpu", ratio: float = 2.0) -> Summary:
    """The summary of a made run."""
    config = {"experiment": "pressure", "runner": "engine", "requests": 4, "prompt_tokens": 8, "output_tokens": 3, "dtype": dtype}
    manifest: dict[str, Any] = {
        "kvbench": "0.1.0",
        "created": "2026-11-29T20:49:13+00:00",
        "command": ["kvbench", "run"],
        "seeds": {"workload": 0, "weights": 0},
        "nonce": None,
        "profile": "engine",
        "config": {**config, "arm": list(arms), "temperature": 0.0},
        "arms": [{"name": name, "command": None} | ({} if arm.pool is None else {"device_tokens": arm.pool}) for name, arm in arms.items()],
        "model": {"name": "tiny", "vocab": 2048, "dtype": dtype, "bytes_per_token": 1024},
        "capacity": {"device_tokens": 32, "block_size": 4, "host_tokens": {}, "chunk_tokens": None},
        "workload": {
            "requests_per_pass": 4, "passes": ["pressure"], "prompt_tokens": [8] * 4, "output_tokens": [3] * 4, "working_set_tokens": 40,
        },
        "working_set_ratio": ratio,
        "environment": {
            "device": device, "cpu": "made", "cores": 2, "memory_gib": 8.0, "os": "made", "python": "3", "packages": {}, "commit": None,
        },
    }  # fmt: skip
    with RunFolder(folder, manifest) as run:
        for name, arm in arms.items():
            for repeat, wall_s in enumerate(arm.wall_s):
                for position in range(4):
                    run.append_request(arm.edit(made_request(name, repeat, position)))
                totals = PassTotals(dict.fromkeys(COUNTERS, 0), {**COUNTERS, **arm.counters}, 32, 0, 0, 0, peak_running=arm.peak)
                run.append_pass(PassRecord(name, repeat, "pressure", 0, 4, 0, wall_s, totals))
        run.finish("complete")
    return summarise(read_run(folder))


def row(summary: Summary, arm: str) -> PressureRow:
    rows: tuple[PressureRow, ...] = summary.rows["pressure"]
    return next(item for item in rows if item.arm == arm)


def test_every_figure_of_a_row(tmp_path: Path) -> None:
    found = row(made(tmp_path / "run"), "recompute")
    assert (found.pool_tokens, found.requests, found.finished, found.peak_running) == (32, 4, 4, 4)
    assert (found.tokens_per_s, found.share, found.share_interval) == (6.0, 0.5, None)  # 4 · 3 tokens in 2 s; ample in 1 s
    assert (found.ttft_ms.n, found.tpot_ms.n, found.itl_ms.n, found.ttft_ms.p99) == (4, 4, 8, None)
    assert [found.ttft_ms.p50, found.tpot_ms.p50, found.itl_ms.p50, found.itl_ms.max] == pytest.approx([100, 150, 150, 200])
    assert (found.preemptions, found.rebuilt_tokens, found.computed_tokens, found.wasted) == (4, 20, 80, 0.25)
    assert (found.same_outputs, found.compared_outputs) == (4, 4)


def test_stalls_are_summed_and_the_longest_is_split(tmp_path: Path) -> None:
    summary = made(tmp_path / "run")
    assert row(summary, "swap").stalls == StallTimes(
        2,
        sum=Split(400.0, 280.0, 30.0, 0.0, 90.0),
        median=Split(200.0, 140.0, 15.0, 0.0, 45.0),
        longest=Split(200.0, 180.0, 5.0, 0.0, 15.0),
    )
    assert row(summary, "ample").stalls == StallTimes(0)


def test_the_tables_say_the_same(tmp_path: Path) -> None:
    lines = [" ".join(line.split()) for line in terminal.render(made(tmp_path / "run")).splitlines()]
    assert "recompute 4/4 4/4 6.0 100.0 – 150.0 – 150.0 –" in lines
    assert "recompute 32 4 4 20 25.0 % 0.0 0.0 0 200" in lines
    assert "swap 32 4 2 0 0.0 % 4.0 3.0 0 200" in lines
    assert "reserve 32 2 0 0 0.0 % 0.0 0.0 0 0" in lines
    assert "swap median 2 200.0 140.0 15.0 0.0 45.0" in lines


def test_the_sentences_say_what_the_shortage_cost_and_which_recovery_was_cheaper(tmp_path: Path) -> None:
    summary = made(tmp_path / "run", twice(DEFAULT))
    assert summary.sentences == (
        "Arm recompute gave 6 output tokens/s, 0.50x [95 % 0.50 to 0.50] of ample's 12: 4 preemptions, the longest stall 200 ms, 25 % of "
        "its work was done before.",
        "Arm swap gave 8 output tokens/s, 0.67x [95 % 0.67 to 0.67] of ample's 12: 2 preemptions, the longest stall 200 ms.",
        "Arm reserve gave 3 output tokens/s, 0.25x [95 % 0.25 to 0.25] of ample's 12: no request was preempted, and at most 2 ran at once "
        "instead of 4 (TTFT p50 100 ms instead of 100 ms).",
        "Cheaper here: swap (8 output tokens/s by swap, 6 by recompute; the wait for room left out, coming back took 60.0 ms by swap, "
        "50.0 ms by recompute in the median). Device pool and swap space are both RAM here, and a swap is a memory copy.",
    )
    assert [(arm.arm, arm.kind) for arm in summary.verdict.arms] == [("recompute", "slower"), ("swap", "slower"), ("reserve", "slower")]


def test_one_repeat_tells_no_difference(tmp_path: Path) -> None:
    """A ratio of 2.73 came out by chance: with one repeat nothing in the run tells its noise."""
    summary = made(tmp_path / "run")
    assert "0.67x of ample's 12, with nothing to tell how much of it is noise (--repeats 3): 2 preemptions" in summary.sentences[1]
    assert summary.sentences[-1].startswith("Neither recovery was clearly cheaper here")
    assert (summary.verdict.standing, {arm.kind for arm in summary.verdict.arms}) == ("unknown", {"unknown"})


def test_on_a_gpu_no_sentence_speaks_of_ram(tmp_path: Path) -> None:
    summary = made(tmp_path / "run", device="cuda")
    assert "RAM" not in " ".join((*summary.sentences, *summary.limits))


@pytest.mark.parametrize(("swap_s", "said"), [(1.95, "Neither recovery was clearly cheaper here"), (2.2, "Cheaper here: recompute")])
def test_a_difference_within_five_per_cent_is_none(tmp_path: Path, swap_s: float, said: str) -> None:
    arms = DEFAULT | {"swap": replace(DEFAULT["swap"], wall_s=(swap_s,))}
    assert made(tmp_path / "run", twice(arms)).sentences[-1].startswith(said)


def test_with_repeats_it_is_the_intervals_that_decide(tmp_path: Path) -> None:
    walls = {"ample": (1.0, 1.0, 1.0), "recompute": (1.8, 2.0, 2.2), "swap": (1.4, 1.9, 2.0), "reserve": (4.0, 4.0, 4.0)}
    summary = made(tmp_path / "run", {name: replace(arm, wall_s=walls[name]) for name, arm in DEFAULT.items()})
    found = row(summary, "recompute")
    assert (found.tokens_per_s, found.requests) == (6.0, 12)
    assert found.share_interval is not None
    assert found.share_interval[0] < 0.5 < found.share_interval[1]
    assert summary.sentences[-1].startswith("Neither recovery was clearly cheaper here")
    assert summary.sentences[0].startswith("Unsteady times: the same work differed by 41 % within this run (repeats of arm swap)")
    assert "[95 % " in summary.sentences[1]


def test_tokens_that_come_together_count_as_so_many_gaps(tmp_path: Path) -> None:
    def chunked(record: RequestRecord) -> RequestRecord:
        return replace(record, token_times_s=[0.1, 0.4], chunk_tokens=[1, 2])

    found = row(made(tmp_path / "run", {"ample": Arm(edit=chunked)}), "ample").itl_ms
    assert found.n == 8
    assert [found.min, found.max, found.mean] == pytest.approx([0.0, 300, 150])


def test_unknown_counts_are_unknown(tmp_path: Path) -> None:
    """As on a server, which counts preemptions and nothing else, and says no ids."""

    def on_server(record: RequestRecord) -> RequestRecord:
        return replace(record, preemptions=None, output_digest=None)

    run = made(tmp_path / "run", {"ample": Arm(edit=on_server, peak=None), "recompute": Arm(edit=on_server, peak=None)})
    lines = [json.loads(line) for line in (tmp_path / "run" / "passes.jsonl").read_text().splitlines()]
    for line in lines:
        line["counters_after"] = {"preemptions": 3 * (line["arm"] == "recompute")}
    (tmp_path / "run" / "passes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = summarise(read_run(tmp_path / "run"))
    found = row(run, "recompute")
    assert (found.preemptions, found.rebuilt_tokens, found.wasted, found.swapped_out_bytes, found.swap_full) == (3, None, None, None, None)
    assert (found.peak_running, found.same_outputs, found.compared_outputs, found.stalls) == (None, None, 0, StallTimes(0))
    text = terminal.render(run)
    assert "as ample" not in text
    assert "recompute 32 – 3 – – – – – –" in " ".join(text.split())


def test_a_run_of_before_has_no_digests_and_is_read_all_the_same(tmp_path: Path) -> None:
    made(tmp_path / "run")
    file = tmp_path / "run" / "requests.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({name: value for name, value in line.items() if name != "output_digest"}) + "\n" for line in lines))
    assert row(summarise(read_run(tmp_path / "run")), "swap").same_outputs is None


def test_an_interrupted_run_shows_what_there_is(tmp_path: Path) -> None:
    made(tmp_path / "run")
    (tmp_path / "run" / "passes.jsonl").write_text("")
    requests, manifest = tmp_path / "run" / "requests.jsonl", tmp_path / "run" / "manifest.json"
    requests.write_text("".join(requests.read_text().splitlines(keepends=True)[4:8]))  # of recompute, which was being measured
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "status": "interrupted"}))
    summary = summarise(read_run(tmp_path / "run"))
    assert row(summary, "recompute").tokens_per_s is None
    assert summary.sentences == ("The arm ample did not end, so there is nothing to compare the others with.",)
    assert terminal.render(summary)
    assert to_csv(summary).count("\n") == 2


# Reasons not to trust a run, and notes.


def changed(arm: str, position: int, **fields: Any) -> dict[str, Arm]:
    """The default arms with one request of one of them changed."""

    def edit(record: RequestRecord) -> RequestRecord:
        record = DEFAULT[arm].edit(record)
        return replace(record, **fields) if record.key.position == position else record

    return DEFAULT | {arm: replace(DEFAULT[arm], edit=edit)}


@pytest.mark.parametrize(
    ("arms", "reason"),
    [
        (
            DEFAULT | {"ample": replace(DEFAULT["ample"], counters={"preemptions": 1})},
            "arm ample has room for every request at its end, and there was 1 preemption all the same",
        ),
        (
            DEFAULT | {"reserve": replace(DEFAULT["reserve"], counters={"preemptions": 2})},
            "arm reserve keeps room for every answer from the start, and there were 2 preemptions all the same",
        ),
        (
            changed("swap", 3, output_tokens=2, token_times_s=[0.1, 0.4], chunk_tokens=[1, 1]),
            "prompt and output are not as long as asked for, in 1 request (the first, swap-r0-p0-3: 8 + 2, not 8 + 3)",
        ),
        (
            changed("recompute", 2, stalls=[Stall(2, 200.0, 150.0, 0.0, 40.0, 0.0)]),
            "parts of a stall do not sum to the gap between its tokens, in 1 request (the first, recompute-r0-p0-2)",
        ),
        (
            changed("recompute", 1, stalls=[Stall(1, 200.0, 150.0, 0.0, 50.0, 0.0)]),
            "parts of a stall do not sum to the gap between its tokens, in 1 request (the first, recompute-r0-p0-1)",
        ),
    ],
)
def test_reasons_not_to_trust_a_run(tmp_path: Path, arms: Mapping[str, Arm], reason: str) -> None:
    assert reason in made(tmp_path / "run", arms).reasons


def test_a_good_run_has_no_reason_and_no_note(tmp_path: Path) -> None:
    summary = made(tmp_path / "run")
    assert (summary.reasons, summary.notes) == ((), ())


def test_a_request_without_a_record_is_noticed(tmp_path: Path) -> None:
    made(tmp_path / "run")
    file = tmp_path / "run" / "passes.jsonl"
    file.write_text(file.read_text().replace('"requests":4', '"requests":3', 1))
    requests = tmp_path / "run" / "requests.jsonl"
    lines = requests.read_text().splitlines(keepends=True)
    requests.write_text("".join(lines[:3] + lines[4:]))
    assert summarise(read_run(tmp_path / "run")).reasons == ("arm ample, repeat 0: 3 of 4 requests came to an end",)


def test_other_tokens_are_a_note_in_float32_and_a_reason_in_float64(tmp_path: Path) -> None:
    arms = changed("swap", 2, output_digest=digest([9, 9, 9]))
    said = "arm swap gave other tokens than ample in 1 request of repeat 0 (the first, swap-r0-p0-2)"
    rounded, exact = made(tmp_path / "float32", arms), made(tmp_path / "float64", arms, dtype="float64")
    assert [note for note in rounded.notes if note.startswith(said) and "--dtype float64 tells that from a fault" in note]
    assert rounded.reasons == ()
    assert [reason for reason in exact.reasons if reason.startswith(said)]
    assert (row(exact, "swap").same_outputs, row(exact, "swap").compared_outputs) == (3, 4)


@pytest.mark.parametrize(("wall_s", "noted"), [(0.9, False), (0.8, True)])
def test_an_arm_much_faster_than_ample_speaks_of_the_machine(tmp_path: Path, wall_s: float, noted: bool) -> None:
    summary = made(tmp_path / "run", DEFAULT | {"recompute": replace(DEFAULT["recompute"], wall_s=(wall_s,))})
    assert [note.partition(";")[0] for note in summary.notes] == ["unsteady times (noise 25 %"] * noted
    assert ("(arm recompute faster than ample, which does the least work)" in summary.sentences[0]) == noted


def test_what_fits_shows_nothing(tmp_path: Path) -> None:
    notes = made(tmp_path / "run", ratio=0.9).notes
    assert notes[0].startswith("fits: the pool (32) holds all requests at their end (40): nothing runs short; lower --kv-tokens")


def test_a_digest_is_of_the_ids_in_order() -> None:
    assert digest([1, 2]) == "34fb5c825de7ca4a"
    assert len({digest(ids) for ids in ([], [0], [1, 2], [2, 1], [1, 2, 0], [513])}) == 6
