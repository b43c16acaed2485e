"""`kvbench run pressure` on vLLM servers, fake ones: a pool for each arm, preemptions by the counter, and what cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kvbench.cli.main import main
from kvbench.runs.run_folder import read_run
from kvbench.summary.summary import summarise
from kvbench.testing.fake_script import Script
from kvbench.testing.fake_server import serving
from tests.runners.servers.lives import MARK, all_gone, fake_python
from tests.runners.vllm.test_started_runs import CONFIG, mark

SHORT = Script(pool_tokens=160, block_size=16, gap_s=0.001)
AMPLE = replace(SHORT, pool_tokens=320)
SIZES = ["--requests", "4", "--prompt-tokens", "40", "--output-tokens", "20", "--vocab", "1000", "--quiet"]
Captured = pytest.CaptureFixture[str]


def attach(out: Path, scripts: dict[str, Script], options: Sequence[str] = ()) -> int:
    with ExitStack() as stack:
        urls = [f"{arm}={stack.enter_context(serving(script)).url}" for arm, script in scripts.items()]
        words = [word for url in urls for word in ("--url", url)]
        return main(["run", "pressure", "--runner", "vllm", *words, *SIZES, "--repeats", "1", *options, "--out", str(out)])


def error_of(capsys: Captured) -> str:
    *before, error = capsys.readouterr().err.splitlines()
    assert error.startswith("kvbench: error: ")
    assert all("requests done" in line for line in before)
    return error


def test_preemptions_are_the_servers_and_outputs_are_compared_by_their_ids(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"ample": AMPLE, "recompute": replace(SHORT, preempt_every=2)}) == 0
    run = read_run(tmp_path / "run")
    ample, recompute = summarise(run).rows["pressure"]
    assert (ample.pool_tokens, recompute.pool_tokens) == (320, 160)
    assert ample.preemptions == 0
    assert recompute.preemptions is not None
    assert recompute.preemptions > 0
    assert (recompute.finished, recompute.same_outputs, recompute.compared_outputs) == (4, 4, 4)  # the fake server counts 0, 1, 2, ...
    assert (recompute.rebuilt_tokens, recompute.peak_running, recompute.wasted) == (None, None, None)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "Stalls, by what the time was spent on" not in out
    assert "hits are not predicted" not in out
    assert "Arm recompute gave " in out


def test_an_ample_arm_that_preempts_is_not_to_be_trusted(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"ample": replace(AMPLE, preempt_every=2), "recompute": SHORT}) == 4
    assert "arm ample has room for every request at its end, and there " in capsys.readouterr().err


def test_a_server_without_ids_leaves_outputs_unknown(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"ample": replace(AMPLE, knows_ids=False), "recompute": replace(SHORT, knows_ids=False)}) == 0
    assert [row.same_outputs for row in summarise(read_run(tmp_path / "run")).rows["pressure"]] == [None, None]
    assert "as ample" not in capsys.readouterr().out


def test_all_requests_are_in_flight_at_once(tmp_path: Path, capsys: Captured) -> None:
    scripts = {"ample": replace(AMPLE, first_token_s=0.2), "recompute": replace(SHORT, first_token_s=0.2)}
    assert attach(tmp_path / "run", scripts) == 0
    lines = [line for line in read_run(tmp_path / "run").requests if line["arm"] == "ample"]
    assert max(line["sent_s"] for line in lines) < min(line["first_token_s"] for line in lines)
    before = read_run(tmp_path / "run").passes[0]["counters_before"]
    assert before["finished"] == 1 + 4  # warmed up by a prompt alone, and by as many at once as will be in flight


def test_an_ample_server_that_is_too_small_is_refused_before_anything_is_sent(tmp_path: Path, capsys: Captured) -> None:
    assert attach(tmp_path / "run", {"ample": SHORT, "recompute": SHORT}) == 2
    assert (
        "--url ample: all requests at their end need a pool of 272 tokens, the server's has 160; start it with a larger one, or lower "
        "--requests" in error_of(capsys)
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (["ample"], "--url names no server for arm recompute; give --url recompute=URL, or leave the arm out (--arm)"),
        (["ample", "recompute", "none"], "none is no arm of this run; name it with --arm none"),
    ],
)
def test_arms_and_servers_must_match(tmp_path: Path, capsys: Captured, arms: list[str], message: str) -> None:
    assert attach(tmp_path / "run", dict.fromkeys(arms, AMPLE)) == 2
    assert message in error_of(capsys)


@pytest.mark.parametrize("arm", ["swap", "reserve"])
def test_arms_that_vllm_does_not_have_are_wrong_use(capsys: Captured, arm: str) -> None:
    assert main(["run", "pressure", "--runner", "vllm", "--arm", arm]) == 2
    assert f"--arm {arm}: vLLM has ample and recompute only" in error_of(capsys)


def test_a_started_server_has_the_pool_of_its_arm_and_a_log_named_by_it(tmp_path: Path, capsys: Captured) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    server = ["--runner", "vllm", "--vllm-python", str(fake_python(tmp_path, "fake_serving.py")), "--model", str(model)]
    sizes = ["--requests", "16", "--repeats", "1", "--env", f"{MARK}={mark(tmp_path)}", "--quiet", "--out", str(tmp_path / "run")]
    assert main(["run", "pressure", *server, *sizes]) == 0
    run = read_run(tmp_path / "run")
    told = {arm["name"]: [word for word in arm["command"]["vllm"]["command"] if "blocks" in word] for arm in run.manifest["arms"]}
    # 16 requests of 256 tokens, 8 blocks of 32 each, and block 0, which vLLM never uses; and 2,048 tokens.
    assert told == {"ample": ["--num-gpu-blocks-override=129"], "recompute": ["--num-gpu-blocks-override=64"]}
    assert {log.name for log in (tmp_path / "run").glob("*.log")} == {"server-ample-r0.log", "server-recompute-r0.log"}
    assert [row.pool_tokens for row in summarise(run).rows["pressure"]] == [129 * 32, 64 * 32]
    assert run.manifest["profile"] is None
    assert all_gone(mark(tmp_path), 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output-tokens", "2000"], "128 prompt and 2,000 output tokens exceed the pool's 2,016 usable tokens; raise --kv-tokens"),
        (["--block-size", "2048"], "--kv-tokens 2048: vLLM needs two blocks of --block-size 2048, and leaves one idle"),
    ],
)
def test_what_a_started_server_could_not_run_is_refused_before_it_starts(
    tmp_path: Path, capsys: Captured, options: list[str], message: str
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    server = ["--runner", "vllm", "--vllm-python", str(fake_python(tmp_path, "fake_serving.py")), "--model", str(model)]
    assert main(["run", "pressure", *server, *options, "--quiet", "--out", str(tmp_path / "run")]) == 2
    assert message in error_of(capsys)
    assert not (tmp_path / "run").exists()
