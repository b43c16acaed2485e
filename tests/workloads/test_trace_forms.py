"""Traces as people have them: the values of ``tests/data/inputs``; times in their own unit, or a question; blocks that are not named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbench.cli.main import main
from kvbench.errors import UsageError
from kvbench.experiments.trace.options import TraceOptions
from kvbench.experiments.trace.workload import make_workload
from kvbench.planning.trace_accesses import block_trace, footprints
from kvbench.runners.base import as_source
from kvbench.workloads.lengths_file import read_lengths_file
from kvbench.workloads.traces.blocks import distinct_blocks
from kvbench.workloads.traces.line import TraceLine
from kvbench.workloads.traces.reader import TraceContext, TracedRequest, TraceReader
from kvbench.workloads.traces.registry import TRACE_READERS
from kvbench.workloads.traces.trace import UNKNOWN, Prompts, Trace
from tests.experiments.trace.test_trace import FACTS, workload
from tests.folders import save_tokenizer
from tests.traces import hashed, read_trace, write_trace

INPUTS = Path(__file__).parent.parent / "data" / "inputs"
TEMPLATE = "{% for message in messages %} {{ message['content'] }} w9{% endfor %}{% if add_generation_prompt %} w2{% endif %}"


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of a model that has a chat template."""
    folder = tmp_path_factory.mktemp("model")
    save_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}), encoding="utf-8")
    return folder / "tokenizer.json"


def span(trace: Trace) -> float:
    assert trace.times_s is not None
    return trace.times_s[-1] - trace.times_s[0]


# Units of time.


def test_bailian_is_seconds_and_blocks_of_16_without_further_options(capsys: pytest.CaptureFixture[str]) -> None:
    trace = read_trace(INPUTS / "bailian_seconds.jsonl")
    assert trace.times_s is not None
    assert (len(trace), trace.block_tokens, trace.times_s[0], trace.times_s[-1]) == (40, 16, 24.054, 1934.719)
    assert span(trace) == pytest.approx(1910.665)
    assert main(["plan", "--trace", str(INPUTS / "bailian_seconds.jsonl"), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["requests"], plan["block_size"], plan["span_s"]) == (40, 16, pytest.approx(1910.665))
    assert list(workload(INPUTS / "bailian_seconds.jsonl", trace_block_size=None).times_s or ())[-1] == pytest.approx(1910.665)


def test_a_fraction_of_a_millisecond_asks_for_the_unit(tmp_path: Path) -> None:
    file = write_trace(tmp_path / "a.jsonl", [hashed(1, tokens=5) | {"timestamp": time} for time in (3, 24.054)])
    with pytest.raises(UsageError, match=r"line 2: timestamp 24.054 has a fraction; --trace-time-unit s says that it is"):
        read_trace(file)
    assert span(read_trace(file, time_unit="s")) == pytest.approx(21.054)
    assert span(read_trace(file, time_unit="ms")) == pytest.approx(0.021054)
    assert span(read_trace(write_trace(tmp_path / "b.jsonl", [hashed(1, tokens=5) | {"timestamp": time} for time in (3, 24.0)]))) == 0.021


def test_a_pace_that_no_trace_has_asks_for_the_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_trace(tmp_path / "a.jsonl", [hashed(1, tokens=5, time_ms=second) for second in range(120)])
    assert main(["plan", "--trace", str(file)]) == 2
    assert "in milliseconds its 120 requests came within 0.119 s; --trace-time-unit s says" in capsys.readouterr().err
    assert main(["plan", "--trace", str(file), "--trace-time-unit", "s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["span_s"] == 119
    assert span(read_trace(file, time_unit="ms")) == pytest.approx(0.119)
    with pytest.raises(UsageError, match="in milliseconds its 120 requests"):
        workload(file, trace_block_size=512)
    assert list(workload(file, trace_block_size=512, trace_time_unit="s").times_s or ())[-1] == 119


def test_own_requests_in_milliseconds_are_said_so(tmp_path: Path) -> None:
    file = write_trace(tmp_path / "a.jsonl", [{"token_ids": [1], "timestamp": time} for time in (1.76e12, 1.76e12 + 500)])
    with pytest.raises(UsageError, match="is not in seconds, or beyond the year 5000; --trace-time-unit says its unit"):
        read_trace(file)
    assert span(read_trace(file, time_unit="ms")) == 0.5


def test_dates_have_no_unit() -> None:
    with pytest.raises(UsageError, match=r"--trace-time-unit s: the times of .*azure23.csv are dates; leave it out"):
        read_trace(INPUTS / "azure23.csv", time_unit="s")


# Blocks that are not named.


def test_ids_of_full_blocks_only_are_a_known_form() -> None:
    file = INPUTS / "trace_full_blocks_only.jsonl"
    with pytest.raises(UsageError, match=r"takes 2 blocks of 512, and there are 8 hash_ids; --trace-block-size says .* \(64 would do\)"):
        read_trace(file)
    trace = read_trace(file, block_tokens=64)
    blocks = block_trace(trace, 64)
    assert (list(trace.prompt_tokens), blocks.accesses, int((blocks.previous(blocks.ids) >= 0).sum())) == ([521, 530], 16, 7)


def test_what_is_not_named_never_hits_and_is_computed_all_the_same(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path / "a.jsonl", [hashed(1, 2, tokens=150)] * 2), block_tokens=64)
    assert [list(block_trace(trace, size).ids) for size in (64, 16)] == [[2, 3] * 2, [*range(8, 16)] * 2]
    first, second = footprints(trace, [1, 1], 16, 16)
    assert list(first.blocks[:8]) == list(second.blocks[:8])
    assert first.blocks[8] != second.blocks[8]  # the ninth block of 16 lies in the rest
    blocks = distinct_blocks(trace)
    assert int((blocks.ends - blocks.starts).sum()) == 128 + 22 + 22
    prompts = Prompts(trace, 0, 999)
    one, two = list(prompts[0]), list(prompts[1])
    assert (len(one), len(two), one[:128] == two[:128], one[128] == two[128]) == (150, 150, True, False)
    assert workload(tmp_path / "a.jsonl", trace_block_size=64).passes[0].doc_ids == [0, 1]


def test_a_prompt_without_one_full_block_has_no_id(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path / "a.jsonl", [hashed(tokens=9), hashed(1, tokens=70)]), block_tokens=64)
    assert (block_trace(trace, 64).accesses, list(trace.prompt_tokens)) == (1, [9, 70])


def weka(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": list(requests)}


def test_a_session_of_weka_with_a_sub_agent(tmp_path: Path) -> None:
    requests = [
        {"t": 0.0, "type": "s", "in": 130, "out": 5, "hash_ids": [1, 2]},
        {"t": 2.0, "type": "subagent", "requests": [{"t": 3.5, "type": "n", "in": 64, "out": 6, "hash_ids": [1]}]},
        {"t": 4.0, "type": "s", "in": 200, "out": 7, "hash_ids": [1, 2, 3]},
    ]
    trace = read_trace(write_trace(tmp_path / "a.json", [weka(*requests)]))
    assert trace.times_s is not None
    assert (list(trace.times_s), list(trace.output_tokens), trace.block_tokens) == ([0.0, 4.0, 5.5], [5, 7, 6], 64)
    assert block_trace(trace, 64).accesses == 6
    (tmp_path / "b.json").write_text(json.dumps(weka(*requests), indent=1), encoding="utf-8")
    assert read_trace(tmp_path / "b.json").prompt_tokens == trace.prompt_tokens
    with pytest.raises(UsageError, match="line 2: a second session"):
        read_trace(write_trace(tmp_path / "c.jsonl", [weka(*requests)] * 2))
    for wrong in (
        {"requests": 5},
        {"requests": [{"t": 10**400, "in": 3}]},
        {"requests": [{"in": 3}]},
        {"requests": [{"t": 0, "in": 3}]},
        {"block_size": "x"},
    ):
        with pytest.raises(UsageError, match="line 1: "):
            read_trace(write_trace(tmp_path / "d.json", [weka({"t": 0, "in": 640, "out": 1, "hash_ids": [1]}) | wrong]))


# Requests in words.


def test_a_batch_is_messages(chat_model: Path, tmp_path: Path) -> None:
    bodies = [{"model": "m", "messages": [{"role": "user", "content": f"w3{number}"}], "max_tokens": 64} for number in (1, 2)]
    lines = [{"custom_id": "r", "method": "POST", "url": "/v1/chat/completions", "body": body} for body in bodies]
    trace = read_trace(write_trace(tmp_path / "a.jsonl", lines), chat_model)
    assert ([list(trace.ids_of(index)) for index in (0, 1)], list(trace.output_tokens)) == ([[31, 9, 2], [32, 9, 2]], [64, 64])
    public = read_trace(INPUTS / "batch.jsonl", chat_model)
    assert (len(public), list(public.output_tokens), public.times_s) == (2, [64, 64], None)
    with pytest.raises(UsageError, match="line 1: body is the object that is sent, not missing"):
        read_trace(write_trace(tmp_path / "b.jsonl", [{"custom_id": "1", "body": None}]), chat_model)


def test_a_conversation_is_a_session_of_turns(chat_model: Path, tmp_path: Path) -> None:
    talk = [("gpt", "w8"), ("human", "w31"), ("gpt", "w32 w33"), ("human", "w34"), ("gpt", "w35"), ("human", "w36")]
    said = {"id": "s", "conversations": [{"from": who, "value": what} for who, what in talk]}
    (tmp_path / "a.json").write_text(json.dumps([said, {"id": "t", "conversations": []}, said]), encoding="utf-8")
    trace = read_trace(tmp_path / "a.json", chat_model)
    assert list(trace.turns) == [0, 1, 2] * 2
    assert list(trace.output_tokens[:3]) == [2, 1, UNKNOWN]
    assert [list(trace.ids_of(index)) for index in (0, 1)] == [[31, 9, 2], [31, 9, 32, 33, 9, 34, 9, 2]]
    assert (len(read_trace(INPUTS / "sharegpt.jsonl", chat_model)), read_trace(INPUTS / "sharegpt.jsonl", chat_model).turns[0]) == (1, 0)
    with pytest.raises(UsageError, match=r"line 1: from is one of human, .*, not \["):
        read_trace(write_trace(tmp_path / "c.jsonl", [{"conversations": [{"from": ["gpt"], "value": ""}]}]), chat_model)
    with pytest.raises(UsageError, match=r'line 1: from is one of human, .*, not "tool"'):
        read_trace(write_trace(tmp_path / "b.jsonl", [{"conversations": [{"from": "tool", "value": ""}]}]), chat_model)


def test_a_later_turn_is_sent_when_the_one_ahead_has_ended(chat_model: Path, tmp_path: Path) -> None:
    parts = [{"from": who, "value": "w31"} for who in ("human", "gpt", "human", "gpt")]
    file = write_trace(tmp_path / "a.jsonl", [{"conversations": parts}] * 2)
    replay = make_workload(TraceOptions.model_validate({"experiment": "trace", "trace": file}), replace(FACTS, tokenizer=chat_model))
    source = as_source(replay.requests("none", 0, replay.passes[0]))
    assert (source.count, [request.key.position for request in source.first]) == (4, [0, 2])
    (later,) = source.after(source.first[1], None)
    assert (later.request.key.position, later.request.key.session, later.request.key.turn, later.pause_s) == (3, 1, 1, 0.0)
    assert source.after(later.request, None) == []


@pytest.mark.parametrize("name", ["token_ids", "prompt_token_ids", "prompt"])
def test_token_ids_by_each_of_their_names(tmp_path: Path, name: str) -> None:
    trace = read_trace(write_trace(tmp_path / "a.jsonl", [{name: [5, 6], "max_completion_tokens": 3}]))
    assert (list(trace.ids_of(0)), list(trace.output_tokens)) == ([5, 6], [3])


# Times and lengths, and no prefixes.


def test_lengths_of_azure_and_burstgpt(tmp_path: Path) -> None:
    assert read_lengths_file(INPUTS / "azure23.csv", 10_000) == [(4808, 10), (3180, 8), (110, 27)]
    assert read_lengths_file(INPUTS / "azure24.csv", 10_000) == [(2162, 5), (2399, 6)]
    with pytest.raises(UsageError, match="line 4: '417' and '0' are not two whole numbers of tokens above 0"):
        read_lengths_file(INPUTS / "burstgpt.csv", 10_000)
    head = tmp_path / "head.csv"
    head.write_text("\n".join((INPUTS / "burstgpt.csv").read_text(encoding="utf-8").split("\n")[:3]), encoding="utf-8")
    assert read_lengths_file(head, 10_000) == [(472, 18), (1087, 230)]
    assert len(read_lengths_file(INPUTS / "bailian_seconds.jsonl", 10_000)) == 40


def test_their_times_are_replayed_with_prompts_that_share_nothing(tmp_path: Path) -> None:
    for name, prompts, times in (("azure23.csv", [4808, 3180, 110], [0, 0.052, 5.12004]), ("azure24.csv", [2162, 2399], [0, 0.007405])):
        trace = read_trace(INPUTS / name)
        assert trace.times_s is not None
        assert list(trace.prompt_tokens) == prompts
        assert [time - trace.times_s[0] for time in trace.times_s] == pytest.approx(times, abs=1e-5)
        assert len(np.unique(np.frombuffer(trace.ids, dtype=np.int64))) == len(trace.ids) == sum(-(-tokens // 512) for tokens in prompts)
    with pytest.raises(UsageError, match='line 4: Response tokens is a whole number of tokens above 0, not "0"; leave out requests that f'):
        read_trace(INPUTS / "burstgpt.csv")
    trace = read_trace(INPUTS / "burstgpt.csv", limit=2)
    assert (list(trace.times_s or ()), list(trace.output_tokens)) == ([5, 45], [18, 230])
    bad = tmp_path / "bad.csv"
    bad.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,1,2\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r'line 2: TIMESTAMP is a date, as 2023-11-16 09:00:03.97, not "soon"'):
        read_trace(bad)


@pytest.mark.parametrize("name", ["azure23.csv", "azure24.csv", "burstgpt.csv"])
def test_nothing_can_be_planned_of_them(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["plan", "--trace", str(INPUTS / name)]) == 2
    error = capsys.readouterr().err
    assert "it says no prefixes" in error
    assert "--lengths" in error
    assert error.count("\n") == 1


# The seam.


def test_a_new_form_is_a_reader_and_nothing_else(tmp_path: Path) -> None:
    def requests(line: TraceLine, context: TraceContext) -> Iterator[TracedRequest]:
        length = line.integer("mine", 1)
        yield TracedRequest(line.number, context.seconds(line, line.values["at"]), length, 1, context.unknown(length // 8))

    TRACE_READERS.register(TraceReader("mine", "mine", lambda first: "mine" in first, requests, lambda first: 8, "ms", lambda first: True))
    try:
        trace = read_trace(write_trace(tmp_path / "a.jsonl", [{"mine": 16, "at": 500}, {"mine": 8, "at": 750}]))
    finally:
        TRACE_READERS.unregister("mine")
    assert (trace.block_tokens, list(trace.prompt_tokens), list(trace.ids), span(trace)) == (8, [16, 8], [-1, -2, -3], 0.25)


def test_no_two_forms_are_of_one_file() -> None:
    for file in INPUTS.glob("*.jsonl"):
        first = json.loads(file.read_text(encoding="utf-8").split("\n")[0])
        assert sum(reader.fits(first) for reader in TRACE_READERS.all().values()) <= 1
