"""Real servers that run already: `kvbench serve` starts one without a tier, which asks for a key, and one with LMCache, for all tests here.

Unless said otherwise a run reads four documents of 1,200 tokens with a question of 3 on 95 usable blocks of 32. A prompt has 37 full blocks
and takes 38; a tier has its 4 whole chunks of 256. Read again in order, nothing is on the device. In reverse two documents are, and 20
blocks of a third.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import pytest

from kvbench.analysis.stalls import stalls_of
from kvbench.cli.main import main
from kvbench.runners.base import Clock, ClosedLoop, ListSource, Request
from kvbench.runners.http.client import Client
from kvbench.runners.http.exchange import Exchange
from kvbench.runners.servers.counters import scrape
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.servers.log_reason import find_trouble
from kvbench.runners.vllm.installation import find_python, inspect
from kvbench.runners.vllm.lmcache import LMCACHE, await_stores, clear
from kvbench.runs.records import RequestKey
from kvbench.runs.run_folder import CONTROLS, Run, control_folder, read_run
from kvbench.summary.summary import summarise
from kvbench.workloads.draws import Draws
from tests.runners.vllm.real_servers import NO_PYTHON, OUTPUT, PYTHON, VOCAB, Served, cached, model_with_template, prompt_counters, served

pytestmark = [pytest.mark.real_vllm, pytest.mark.skipif(not PYTHON, reason=NO_PYTHON)]
Captured = pytest.CaptureFixture[str]

KEY = "geheim"
SIZES = shlex.split("--docs 4 --doc-tokens 1200 --question-tokens 3")
PROMPT, FULL, PART, CHUNKS = 1203, 37 * 32, 20 * 32, 4 * 256
ALL, LEFT = 4 * PROMPT, 2 * FULL + PART
AS_FORESEEN = [
    ("none", "sequential", 0, 0, ALL), ("none", "repeat", 0, 0, ALL), ("none", "reverse", LEFT, 0, ALL - LEFT),
    ("cpu", "sequential", 0, 0, ALL), ("cpu", "repeat", 0, 4 * CHUNKS, ALL - 4 * CHUNKS),
    ("cpu", "reverse", LEFT, 2 * CHUNKS - PART, ALL - LEFT - 2 * CHUNKS + PART),
]  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    """Both servers by arm. When they are stopped, nothing of them is left."""
    folder = tmp_path_factory.mktemp("serve")
    model = model_with_template(folder / "model", tmp_path_factory.getbasetemp() / "cache")
    with served(f"attach-{os.getpid()}", model, folder, KEY) as arms, pytest.MonkeyPatch.context() as patch:
        patch.setenv("THE_KEY", KEY)
        yield arms


@pytest.fixture(scope="module")
def first(servers: dict[str, Served], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the first run on both."""
    folder = tmp_path_factory.mktemp("first") / "run"
    assert attach(servers, folder, *SIZES) == 0
    return folder


def attach(
    servers: dict[str, Served], out: Path, *options: str, arms: tuple[str, ...] = ("none", "cpu"), experiment: str = "cyclic"
) -> int:
    """The exit code of a run on these arms' servers."""
    urls = [word for arm in arms for word in ("--url", f"{arm}={servers[arm].url}")]
    words = ["--runner", "vllm", "--tier", ",".join(arms), *urls, "--api-key-env", "THE_KEY", "--quiet", "--out", str(out)]
    return main(["run", experiment, *words, *options])


def passes(run: Run) -> list[tuple[str, str, int | None, int | None, int | None]]:
    """Tokens by tier of every arm and pass."""
    return [(row.arm, row.pass_name, row.device, row.host, row.computed) for row in summarise(run).passes]


def lines_of(run: Run, arm: str) -> list[dict[str, Any]]:
    return [line for line in run.requests if line["arm"] == arm]


# What serve starts.


def test_serve_says_where_its_servers_are_and_shows_no_key(servers: dict[str, Served]) -> None:
    version = inspect(find_python(Path(PYTHON or ""))).vllm
    for tier, longest in (("none", "3,000"), ("cpu", "3,040")):
        told = servers[tier].told
        assert told.startswith(f"vLLM {version}, arm {tier} (")
        assert "Pool:      3,072 tokens, 96 blocks of 32\n" in told
        assert f"Longest:   {longest} tokens, prompt and output together\n" in told
        assert KEY not in told
    assert "--api-key=***" in servers["none"].told
    assert re.search(r" -m lmcache\.cli\.main server .*--l1-size-gb=1 ", servers["cpu"].told)


def test_a_server_without_a_tier_counts_what_it_is_sent_and_can_be_emptied(servers: dict[str, Served]) -> None:
    """Four documents of 2,003 tokens, of which one and a half fit."""
    none, documents, tokens = servers["none"], 4, 2003
    with none.http() as client:
        seen = KIND.served_model(client, none.url)
        assert (seen.max_tokens, seen.version) == (3000, inspect(find_python(Path(PYTHON or ""))).vllm)
        assert seen.root is not None
        assert Path(seen.root).is_dir()
        capacity = KIND.scrape(client, none.url).capacity
        assert capacity is not None
        assert (capacity.block_size, capacity.tokens) == (32, 96 * 32)
        for _ in range(2):
            counted, answers = none.read_all(client, documents, tokens)
            assert prompt_counters(counted) == (documents * tokens, 0, 0, documents * tokens)
            assert (counted["finished_length"], counted["output_tokens"]) == (documents, documents * OUTPUT)
            assert [cached(answer) for answer in answers] == [0] * documents
        assert cached(none.read(client, 3, tokens)) == 62 * 32  # its full blocks but the one of the last token
        KIND.reset(client, none.url)
        assert cached(none.read(client, 3, tokens)) == 0
    assert find_trouble(*none.logs.glob("*.log")) is None


def test_a_tier_counts_what_it_stores_and_gives_and_can_be_emptied(servers: dict[str, Served]) -> None:
    """Four documents of 2,003 tokens, 7 whole chunks of 256 each."""
    cpu, documents, tokens, chunks, chunk_bytes = servers["cpu"], 4, 2003, 4 * 7, 256 * 8192
    everything, stored = documents * tokens, chunks * 256
    asked = {"kv_transfer_params": {"cached_token_stats": True}}
    with cpu.http() as client:
        KIND.reset(client, cpu.url)
        clear(client, cpu.lmcache_url)
        before = scrape(client, cpu.lmcache_url, LMCACHE).counters
        assert prompt_counters(cpu.read_all(client, documents, tokens, **asked)[0]) == (everything, 0, 0, everything)
        status = await_stores(client, cpu.lmcache_url, 60, chunks)
        assert (status.chunks, status.used_bytes) == (chunks, chunks * chunk_bytes)
        counted, answers = cpu.read_all(client, documents, tokens, **asked)
        assert prompt_counters(counted) == (everything - stored, 0, stored, everything)
        assert (counted["external_queries"], counted["cached_tokens_unspecified"]) == (everything, stored)
        stats = [answer["kv_transfer_params"]["cached_token_stats"] for answer in answers]
        assert [item["num_lmcache_extra_cached_tokens"] for item in stats] == [7 * 256] * documents
        own = scrape(client, cpu.lmcache_url, LMCACHE).counters
        names = ("lmcache_hit_tokens_l1", "lmcache_hit_tokens_l2", "lmcache_chunks_written", "lmcache_chunks_read")
        assert [own[name] - before.get(name, 0) for name in names] == [stored, 0, chunks, chunks]
        KIND.reset(client, cpu.url)
        clear(client, cpu.lmcache_url)
        assert prompt_counters(cpu.read_all(client, documents, tokens)[0]) == (everything, 0, 0, everything)
    assert find_trouble(*cpu.logs.glob("*.log")) is None


# Documents that are read again.


def test_runs_in_a_row_are_cold_and_hit_exactly_what_is_foreseen(
    servers: dict[str, Served], first: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert attach(servers, tmp_path / "second", *SIZES) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "tokens by tier of 12 of 12 requests are as predicted" in " ".join(printed.split())
    again = ["run", "--config", str(first / "manifest.json"), "--passes", "sequential,repeat", "--quiet"]
    assert main([*again, "--out", str(tmp_path / "third")]) == 0
    runs = [read_run(folder) for folder in (first, tmp_path / "second", tmp_path / "third")]
    assert [passes(run) for run in runs] == [AS_FORESEEN, AS_FORESEEN, [row for row in AS_FORESEEN if row[1] != "reverse"]]
    assert {line["attribution"] for run in runs for line in run.requests} == {"counters"}
    for file in first.iterdir():
        assert KEY not in file.read_text()

    capsys.readouterr()
    assert main(["baseline", str(first), "-o", str(tmp_path / "baseline.json")]) == 0
    compared = ["compare", str(tmp_path / "baseline.json"), str(tmp_path / "second")]
    assert main([*compared, "--fail-on", "host_hit_rate[cpu,repeat] < 85%"]) == 0, capsys.readouterr().err
    assert main([*compared, "--fail-on", "host_hit_rate[cpu,repeat] < 86%"]) == 3  # 1,024 of 1,203 tokens are 85.1 %


def test_every_repeat_is_cold_whatever_is_read_again(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    """A header says who is asking; the first pass reads a head that all documents share, which only its first request computes."""
    urls = ["--url", f"none={servers['none'].url}", "--url", f"cpu={servers['cpu'].url}", "--header", f"Authorization: Bearer {KEY}"]
    sizes = shlex.split("--docs 4 --doc-tokens 400 --question-tokens 40 --output-tokens 4 --chunk-tokens 256 --seed 7")
    kinds = shlex.split("--overlap 0.5 --reuse 0.5 --question vary --passes sequential,shuffle,zipf:1.1")
    words = ["--vocab", "1000", "--repeats", "2", "--quiet", "--out", str(tmp_path / "run")]
    assert main(["run", "--runner", "vllm", *urls, *sizes, *kinds, *words]) == 0, capsys.readouterr().err
    run = read_run(tmp_path / "run")
    first = [line for line in run.requests if line["pass"] == "sequential"]
    assert [(line["cached_tokens_device"], line["cached_tokens_host"]) for line in first] == ([(0, 0)] + [(192, 0)] * 3) * 4
    assert "tokens by tier of 24 of 24 requests are as predicted" in " ".join(capsys.readouterr().out.split())
    assert {line["output_tokens"] for line in run.requests} == {4}
    assert KEY not in (tmp_path / "run" / "manifest.json").read_text()


def test_text_files_are_the_tokens_that_the_server_makes_of_them(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    texts = {f"{name}.txt": " ".join([f"the {name} of a tier is what it saves."] * 40) for name in ("worth", "price", "size")}
    (tmp_path / "documents").mkdir()
    for name, text in texts.items():
        (tmp_path / "documents" / name).write_text(text)
    with servers["none"].http() as client:
        model = KIND.served_model(client, servers["none"].url)
        assert model.root is not None
        options = ["--documents", str(tmp_path / "documents"), "--model", model.root, "--question-tokens", "3"]
        assert attach(servers, tmp_path / "run", *options) == 0, capsys.readouterr().err
        counts = [len(tokenized(client, servers["none"].url, {"prompt": texts[name]})) for name in sorted(texts)]
    run = read_run(tmp_path / "run")
    assert run.manifest["workload"]["document_names"] == sorted(texts)
    assert run.manifest["workload"]["document_tokens"] == counts
    assert [line["prompt_tokens"] for line in lines_of(run, "cpu")[:3]] == [count + 3 for count in counts]


def tokenized(client: httpx.Client, url: str, asked: dict[str, Any]) -> list[int]:
    """What the server makes of a prompt or of messages."""
    answer = client.post(f"{url}/tokenize", json={"model": KIND.served_model(client, url).name, **asked})
    answer.raise_for_status()
    tokens: list[int] = answer.json()["tokens"]
    return tokens


def test_controls_get_nothing_from_a_tier(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    """Two documents of 300 tokens, 9 full blocks each. On cores that others use an arm may be faster than the other by chance alone."""
    sizes = shlex.split("--docs 2 --doc-tokens 300 --question-tokens 3 --passes sequential,repeat")
    code = attach(servers, tmp_path / "run", *sizes, "--controls")
    error = capsys.readouterr().err
    by_chance = error.count("the measurement, not the tier, is at work")
    assert (code, error.count("control ")) == (4 if by_chance else 0, by_chance), error
    for name, found in zip(CONTROLS, (0, 2 * 9 * 32), strict=True):
        control = read_run(control_folder(tmp_path / "run", name))
        assert {line["repeat"] for line in control.passes} == {0, 1, 2}
        assert passes(control) == [
            row for arm in ("none", "cpu") for row in ((arm, "sequential", 0, 0, 606), (arm, "repeat", found, 0, 606 - found))
        ]


# Load.


def test_levels_of_concurrency_are_a_sweep(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    levels = ["--concurrency", "1,4", "--passes", "sequential,repeat"]
    assert attach(servers, tmp_path / "levels", *SIZES, *levels) == 0, capsys.readouterr().err
    alone, four = (read_run(tmp_path / "levels" / f"concurrency-{level}") for level in (1, 4))
    assert passes(alone) == [row for row in AS_FORESEEN if row[1] != "reverse"]
    by_tier = {(line["arm"], line["pass"]): [line[f"cached_tokens_{place}"] for place in ("device", "host")] for line in four.passes}
    assert by_tier["none", "sequential"] == by_tier["cpu", "sequential"] == [0, 0]
    assert by_tier["cpu", "repeat"][1] > 3 * CHUNKS
    for line in four.passes:
        assert line["cached_tokens_device"] + line["cached_tokens_host"] + line["computed_tokens"] == ALL
    assert {(line["attribution"], line["cached_tokens_host"]) for line in lines_of(four, "cpu")} == {("usage", None)}
    sent = [line["sent_s"] for line in lines_of(four, "none")][:4]
    assert max(sent) < min(line["first_token_s"] for line in lines_of(four, "none"))


def test_a_sweep_runs_on_servers_that_run_already(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    values = ["--sweep", "reuse=0,1", "--passes", "sequential,repeat"]
    assert attach(servers, tmp_path / "reuse", *SIZES, *values) == 0, capsys.readouterr().err
    host = [[row[3] for row in passes(read_run(tmp_path / "reuse" / f"reuse-{share}")) if row[0] == "cpu"] for share in (0, 1)]
    assert host == [[0, 0], [0, 4 * CHUNKS]]


def test_a_rate_sends_every_arm_at_the_same_times(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    pace = ["--rate", "2", "--arrivals", "poisson", "--passes", "sequential,repeat"]
    assert attach(servers, tmp_path / "run", *SIZES, *pace) == 0, capsys.readouterr().err
    run = read_run(tmp_path / "run")
    gaps = {}
    for arm in ("none", "cpu"):
        times = [line["scheduled_s"] for line in lines_of(run, arm)]
        gaps[arm] = [round(later - earlier, 6) for half in (times[:4], times[4:]) for earlier, later in pairwise(half)]
    assert gaps["none"] == gaps["cpu"]
    assert len(set(gaps["none"])) > 1
    assert all(line["sent_s"] >= line["scheduled_s"] for line in run.requests)
    for line in run.passes:
        assert line["cached_tokens_device"] + line["cached_tokens_host"] + line["computed_tokens"] == ALL


def test_requests_that_outgrow_the_pool_are_preempted_and_lose_no_token(servers: dict[str, Served]) -> None:
    """Ten of 250 + 120 tokens, 12 blocks of 32 each at their end, where 95 blocks hold seven."""
    none = servers["none"]
    requests = [
        Request(RequestKey("none", 0, "pass", 0, place, f"r{place}", place), Draws(0, "outgrow", place).integers(250, 0, VOCAB), 120)
        for place in range(10)
    ]

    def send(concurrency: int) -> dict[str, list[int] | None]:
        ended: dict[str, Exchange] = {}
        client.run(
            ListSource(requests), ClosedLoop(concurrency), lambda request, exchange: ended.update({request.key.request_id: exchange})
        )
        assert [exchange.error for exchange in ended.values()] == [None] * 10
        return {name: exchange.token_ids for name, exchange in ended.items()}

    with none.http() as http:
        client = Client(none.url, KIND.served_model(http, none.url).name, Clock(), none.headers, token_ids=True)
        before = KIND.scrape(http, none.url).counters["preemptions"]
        crowded = send(10)
        preemptions = KIND.scrape(http, none.url).counters["preemptions"]
        alone = send(1)
        assert KIND.scrape(http, none.url).counters["preemptions"] == preemptions > before
    assert crowded == alone


def test_a_run_shows_preemptions_by_the_counters_and_stalls_by_the_stream(
    servers: dict[str, Served], tmp_path: Path, capsys: Captured
) -> None:
    workload = ["--docs", "10", "--doc-tokens", "250", "--question-tokens", "0", "--output-tokens", "120", "--concurrency", "10"]
    assert attach(servers, tmp_path / "run", "--passes", "sequential", *workload, arms=("none",)) == 0, capsys.readouterr().err
    measured = read_run(tmp_path / "run")
    found = stalls_of(measured, "none")
    assert found is not None
    assert found.preemptions is not None
    assert found.preemptions > 0
    long = []  # how many there are depends on who else uses the machine; which they are does not
    for line in measured.requests:
        gaps = [after - before for before, after in pairwise(line["token_times_s"])]
        long += [1e3 * gap for gap in gaps if gap > 50 * median(gaps)]
    assert (found.stalls, found.longest_ms) == (len(long), max(long, default=None))
    assert f"Preemptions on none: {found.preemptions};" in capsys.readouterr().out


def test_pressure_compares_two_servers_by_their_outputs(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    """Nine of 200 + 100 tokens, 10 blocks each at their end: 90 of 95, so neither server runs short."""
    urls = ["--url", f"ample={servers['none'].url}", "--url", f"recompute={servers['cpu'].url}", "--api-key-env", "THE_KEY"]
    workload = ["--requests", "9", "--prompt-tokens", "200", "--output-tokens", "100", "--temperature", "0.5", "--repeats", "1"]
    run = ["run", "pressure", "--runner", "vllm", "--arm", "ample,recompute", *urls, "--quiet", "--out", str(tmp_path / "run")]
    assert main([*run, *workload]) == 0, capsys.readouterr().err
    for row in summarise(read_run(tmp_path / "run")).rows["pressure"]:
        assert (row.pool_tokens, row.preemptions, row.finished, row.same_outputs, row.compared_outputs) == (3072, 0, 9, 9, 9)
    assert main([*run[:-1], str(tmp_path / "more"), "--requests", "10", "--prompt-tokens", "200", "--output-tokens", "101"]) == 2
    assert "--url ample: all requests at their end need a pool of 3,232 tokens, the server's has 3,072" in capsys.readouterr().err


# Traces.


def test_a_trace_is_replayed_at_its_own_times(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    """Mooncake's format, with 64 tokens a hash id; the fourth prompt is left out, and so is all behind the fifth."""
    asked = [(0, [1, 2, 3, 4, 5]), (4000, [1, 2, 3, 4, 6]), (6000, [7, 8, 9, 10, 11]), (7000, list(range(20, 36))), (8000, [1, 2, 3, 4, 5])]
    asked.append((10**9, [1, 2]))
    lines = [{"timestamp": at, "input_length": 64 * len(ids) - 1, "output_length": 3, "hash_ids": ids} for at, ids in asked]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cut = ["--limit", "5", "--max-prompt-tokens", "1000", "--trace-block-size", "64", "--trace-time-unit", "ms", "--speedup", "4"]
    options = ["--trace", str(tmp_path / "trace.jsonl"), *cut]
    assert attach(servers, tmp_path / "run", *options, experiment="trace") == 0, capsys.readouterr().err
    run = read_run(tmp_path / "run")
    for arm in ("none", "cpu"):
        lines_of_arm = lines_of(run, arm)
        start = lines_of_arm[0]["scheduled_s"]
        assert [round(line["scheduled_s"] - start, 6) for line in lines_of_arm] == [0, 1, 1.5, 2]
        assert [line["prompt_tokens"] for line in lines_of_arm] == [319] * 4
        assert [line["output_tokens"] for line in lines_of_arm] == [3] * 4
    # Four blocks of the trace are 8 of the pool; of the prompt that comes again 9 are full, and the tenth is not.
    assert sorted(line["cached_tokens_device"] for line in lines_of(run, "none")) == [0, 0, 256, 288]
    assert run.manifest["workload"]["left_out"] == 1


def test_texts_and_messages_of_a_trace_are_the_tokens_that_the_server_makes_of_them(
    servers: dict[str, Served], tmp_path: Path, capsys: Captured
) -> None:
    words = "it must be said again and again. " * 20
    messages = [{"role": "user", "content": words}, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "why?"}]
    ids = Draws(0, "trace", 0).integers(200, 0, VOCAB)
    lines = [{"prompt": words, "max_tokens": 2}, {"messages": messages}, {"token_ids": ids}, {"prompt": words}]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["--trace", str(tmp_path / "trace.jsonl"), "--concurrency", "1"]
    assert attach(servers, tmp_path / "run", *options, arms=("none",), experiment="trace") == 0, capsys.readouterr().err
    with servers["none"].http() as client:
        text = len(tokenized(client, servers["none"].url, {"prompt": words}))
        conversation = len(tokenized(client, servers["none"].url, {"messages": messages, "add_generation_prompt": True}))
    run = read_run(tmp_path / "run")
    assert [line["prompt_tokens"] for line in run.requests] == [text, conversation, 200, text]
    assert [line["output_tokens"] for line in run.requests] == [2, 8, 8, 8]
    assert [line["cached_tokens_device"] for line in run.requests] == [0, 0, 0, (text - 1) // 32 * 32]
    assert "tokens by tier of 4 of 4 requests are as predicted" in " ".join(capsys.readouterr().out.split())


# What a server is asked and what it is told.


def test_caches_are_emptied_only_where_it_is_allowed(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    small = ["--docs", "1", "--doc-tokens", "300"]
    none = servers["none"]
    with none.http() as client:
        for name, options, kept in (("kept", [], FULL), ("emptied", ["--allow-reset"], 0)):
            none.read(client, 9, PROMPT)
            assert cached(none.read(client, 9, PROMPT)) == FULL
            assert attach(servers, tmp_path / name, *small, *options, arms=("none",)) == 0, capsys.readouterr().err
            assert cached(none.read(client, 9, PROMPT)) == kept
    with servers["cpu"].http() as client:
        servers["cpu"].read_all(client, 1, PROMPT)
        assert attach(servers, tmp_path / "tier", *small, "--allow-reset", arms=("cpu",)) == 0, capsys.readouterr().err
        assert cached(servers["cpu"].read(client, 0, PROMPT)) == CHUNKS
    assert attach(servers, tmp_path / "both", *SIZES, "--allow-reset") == 0, capsys.readouterr().err
    assert passes(read_run(tmp_path / "both")) == AS_FORESEEN


def test_requests_of_others_end_a_run_with_exit_code_4(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    none = servers["none"]
    answered, over = threading.Event(), threading.Event()

    def others() -> None:
        with none.http() as client:
            while not over.is_set():
                none.read(client, 50, 40)
                answered.set()

    thread = threading.Thread(target=others)
    thread.start()
    try:
        assert answered.wait(120)
        assert attach(servers, tmp_path / "run", "--docs", "2", "--doc-tokens", "1200", arms=("none",)) == 4
    finally:
        over.set()
        thread.join()
    found = re.search(
        r"requests from other clients: (?:in|before) pass \w+ of arm none, repeat 0, the server counted (\d+) requests and (\d+) prompt "
        r"tokens",
        capsys.readouterr().err,
    )
    assert found is not None
    assert int(found[2]) > 0
    run = read_run(tmp_path / "run")
    assert (run.manifest["status"], len(run.requests)) == ("invalid", 6)


def test_a_server_wants_to_know_who_is_asking(
    servers: dict[str, Served], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "wrong")
    assert attach(servers, tmp_path / "run", *SIZES) == 1
    assert "/v1/models: answered 401 Unauthorized; it wants to know who is asking: with --url or" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_answer_that_takes_too_long_is_a_failure(servers: dict[str, Served], tmp_path: Path, capsys: Captured) -> None:
    assert attach(servers, tmp_path / "run", "--docs", "1", "--doc-tokens", "2000", "--request-timeout", "0.01", arms=("none",)) == 1
    assert "the warm-up failed (timeout)" in capsys.readouterr().err
    with servers["none"].http() as client:
        assert servers["none"].read(client, 60, 40)["usage"]["prompt_tokens"] == 40


@pytest.mark.parametrize("arm", ["none", "cpu"])
def test_a_plan_asks_a_server_for_its_pool_and_foresees_its_hits(
    servers: dict[str, Served], first: Path, tmp_path: Path, capsys: Captured, arm: str
) -> None:
    key = {"none": ["--api-key-env", "THE_KEY"], "cpu": ["--header", "X-Of: nobody"]}[arm]
    rates = ["--calibrate", str(first), "--plots", str(tmp_path / "plots")]
    assert main(["plan", "--from-server", servers[arm].url, *key, *SIZES, *rates, "--chunk-tokens", "256", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["pool"]["tokens"], plan["pool"]["units"]) == (3072, 96)
    assert plan["server"]["max_tokens"] == {"none": 3000, "cpu": 3040}[arm]
    rows = [(row["arm"], row["pass_label"], row["device"], row["host"] or 0, row["computed"]) for row in plan["passes"]]
    assert rows == AS_FORESEEN
    assert all(row["p50_ms"] > 0 for row in plan["passes"])
    assert sorted(file.name for file in (tmp_path / "plots").iterdir()) == ["plan-repeat.svg", "plan-reverse.svg"]
    assert KEY not in json.dumps(plan)


def test_the_doctor_finds_what_the_real_interpreter_serves(capsys: Captured) -> None:
    installation = inspect(find_python(Path(PYTHON or "")))
    assert main(["doctor", "--json", "--vllm-python", str(PYTHON)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["vllm"]["vllm"], report["vllm"]["lmcache"]) == (installation.vllm, installation.lmcache)
    assert report["redis_server"] == shutil.which("redis-server")
    can_run = {check["tier"]: check["can_run"] for check in report["checks"] if check["runner"] == "vllm"}
    on_gpu = installation.device == "cuda"
    assert can_run == {"none": True, "cpu": True, "lmcache-inproc": on_gpu, "disk": True, "redis": True, "native": on_gpu}
