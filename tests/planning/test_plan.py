"""A whole plan: its predictions, its advice in every case, and what it says of a running server."""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.run import build as build_run
from kvbench.config.common import DEFAULT_KV_TOKENS
from kvbench.errors import RunFailed, UsageError
from kvbench.experiments.composed import all_fields, load_config
from kvbench.experiments.cyclic.options import DEFAULT_DOCS
from kvbench.experiments.cyclic.workload import make_cyclic
from kvbench.planning.config import PlanConfig
from kvbench.planning.plan import make_plan
from kvbench.planning.result import Plan
from kvbench.runners.base import ClosedLoop, as_source
from kvbench.runners.profiles import PROFILES
from kvbench.runners.simulator.prediction import Predictor
from kvbench.runners.simulator.simulator import CacheSizes
from kvbench.runs.rates import Rates
from kvbench.runs.run_folder import read_manifest, read_run, set_status
from kvbench.session import session
from kvbench.session.watcher import Watcher
from kvbench.summary.summary import summarise
from kvbench.testing.fake_script import Script
from kvbench.testing.fake_server import serving
from tests.made import PROMPT, Answer, Made, cyclic

RATES = {"prefill_rate": 8700.0, "restore_rate": 570_000.0, "overhead_ms": 30.0}


@cache
def frozen(options: tuple[tuple[str, Any], ...]) -> Plan:
    return make_plan(PlanConfig.model_validate(dict(options)))


def plan(**options: Any) -> Plan:
    """The same plan is made once; running servers have addresses of their own."""
    return frozen(tuple(sorted(options.items())))


def advice(**options: Any) -> str:
    return " ".join(plan(**options).advice)


# predictions


@pytest.mark.parametrize("profile", ["vllm", "engine", "documents"])
def test_the_passes_are_those_that_a_run_carries(profile: str) -> None:
    made, config = plan(profile=profile, **RATES), PlanConfig.model_validate({"profile": profile})
    workload = make_cyclic(config, DEFAULT_DOCS, 2048, Path("none"))
    rates = Rates(8700.0, 570_000.0, 30.0)
    for arm, host in (("none", None), ("cpu", made.host.tokens)):
        predictor = Predictor(PROFILES[profile], CacheSizes(DEFAULT_KV_TOKENS, 16, host, 256), rates)
        for row, item in zip([row for row in made.passes if row.arm == arm], workload.passes, strict=True):
            expected = predictor.predict(as_source(workload.requests(arm, 0, item)), ClosedLoop(1)).to_json()
            assert (row.device, row.host or 0, row.computed) == (expected["device"], expected["host"], expected["computed"])
            times = sorted(expected["ttft_ms"])
            assert row.p50_ms == pytest.approx((times[4] + times[5]) / 2)
            assert row.mean_ms == pytest.approx(sum(times) / 10)


def test_the_default_plan_is_the_server_of_the_published_measurement() -> None:
    made = plan()
    assert made.kv.bytes_per_token == 28_672
    assert (made.working_set.tokens, round(made.working_set.gib, 2)) == (50_110, 1.34)
    assert (made.pool.tokens, made.pool.units, made.pool_documents) == (21_520, 1345, 4)
    assert [row.device for row in made.passes if row.arm == "none"] == [0, 0, 21_488]
    assert [row.host for row in made.passes] == [None, None, None, 0, 48_640, 27_792]
    assert made.host_recommended is not None
    assert (made.host_recommended.tokens, made.host_gib) == (60_928, 1.63)
    assert made.notes == ()


def test_the_recommended_gib_hold_the_recommended_tokens() -> None:
    for options in ({}, {"docs": 7, "doc_tokens": 4321}, {"model": "tiny", "docs": 3, "kv_tokens": 6000}, {"profile": "engine"}):
        made = plan(**options)
        assert made.host_recommended is not None
        assert made.host_gib is not None
        assert int(made.host_gib * 2**30) // made.kv.bytes_per_token >= made.host_recommended.tokens
        given = plan(**options, host_gib=made.host_gib)
        assert [(row.device, row.host) for row in given.passes] == [(row.device, row.host) for row in made.passes]


def test_times_are_unknown_without_rates_and_ratios_of_p50_with_them() -> None:
    assert {row.p50_ms for row in plan().passes} == {None}
    rows = plan(**RATES).passes
    assert rows[4].speedup == pytest.approx((rows[1].p50_ms or 0) / (rows[4].p50_ms or 1))
    assert [row.speedup for row in rows[:3]] == [1.0, 1.0, 1.0]


def test_the_curve_passes_through_every_mark_and_only_grows() -> None:
    made = plan(**RATES)
    assert made.smallest_hit is not None
    assert made.smallest_all is not None
    shown = {row.pool.tokens: row for row in made.curve if row.shown}
    assert {made.pool.tokens, made.smallest_hit.tokens, made.smallest_all.tokens} <= set(shown)
    pools = [row.pool.tokens for row in made.curve]
    assert pools == sorted(set(pools))
    for place, label in enumerate(("repeat", "reverse")):
        found = [row.passes[place] for row in made.curve]
        assert {item.pass_label for item in found} == {label}
        assert [item.none_rate for item in found] == sorted(item.none_rate for item in found)
        assert [item.none_p50_ms for item in found] == sorted((item.none_p50_ms or 0 for item in found), reverse=True)
    assert shown[made.smallest_all.tokens].passes[0].none_rate > 0.99
    assert shown[made.pool.tokens].passes[0].none_rate == 0
    assert all(row.best_rate is not None and row.best_rate >= row.lru_rate for row in shown.values())
    assert {row.best_rate for row in made.curve if not row.shown} == {None}


def test_a_range_of_pools_can_be_asked_for() -> None:
    pools = [row.pool.tokens for row in plan(pool_tokens="8000:16000").curve]
    assert (pools[0], pools[-1]) == (8000, 16_000)
    below = [row.pool.tokens for row in plan(pool_tokens="16:8000").curve]
    assert below[0] == 5056, "the smallest pool that runs a request: 315 blocks, and block 0"


def test_one_pass_that_reads_again_within_itself() -> None:
    made = plan(passes="zipf:1.1", kv_tokens=12_000)
    assert made.headline == "zipf:1.1"
    assert made.curve[0].passes[0].pass_label == "zipf:1.1"
    assert made.host_recommended is not None
    [sentence] = plan(passes="zipf:1.1").advice
    assert sentence.startswith("No tier: the pool finds everything that is read again"), "although it does not hold all documents"


def test_passes_of_one_name_are_told_apart() -> None:
    assert [row.pass_label for row in plan(passes="sequential,repeat,repeat").passes[:3]] == ["sequential", "repeat", "repeat#2"]


# advice


def test_add_a_tier() -> None:
    text = advice(**RATES)
    assert "Add a cpu tier of 60,928 tokens (1.63 GiB)" in text
    assert "finds 0.0 % of the prompt tokens, pool and tier 96.8 %" in text
    assert "predicted TTFT p50 607.6 ms without it" in text
    assert "pool would need 50,272 tokens (1.34 GiB)" in text
    assert "no order of eviction finds more than 28.5 %" in text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kv_tokens": 100_000}, "No tier: it fits, and the pool finds"),
        ({"reuse": 0.0}, "No tier: nothing is read again"),
        ({"passes": "sequential"}, "No tier: nothing is read again"),
        ({"docs": 3, "doc_tokens": 100, "question_tokens": 0, "kv_tokens": 250}, "fills no chunk of 256 tokens"),
        ({**RATES, "restore_rate": 1000.0}, "No tier: at these rates loading takes longer"),
    ],
)
@pytest.mark.parametrize("profile", ["vllm", "engine"])
def test_no_tier_and_why(profile: str, options: dict[str, Any], reason: str) -> None:
    made = plan(profile=profile, **options)
    [sentence] = made.advice
    assert reason in sentence
    assert (made.host_recommended, made.host_gib, made.commands) == (None, None, ())


def test_a_tier_that_is_too_small_and_one_that_is_enough() -> None:
    small = plan(host_gib=1.0)
    assert "A cpu tier of 37,376 tokens (1.00 GiB) is too small, 60,928 tokens (1.63 GiB) would hold the work" in small.advice[0]
    assert "A tier of 60,928 tokens never evicts" in small.notes[0]
    large = plan(host_tokens=100_000)
    assert "is enough; 60,928 tokens (1.63 GiB) would do" in large.advice[0]
    assert large.notes == ()


def test_a_tier_that_evicts_what_nobody_reads_again_is_not_called_enough() -> None:
    made = plan(docs=5, kv_tokens=6000, reuse=0.4, host_tokens=45_000)
    assert "44,800 tokens (1.20 GiB) may be enough, but evicts on the way; 67,072 tokens (1.79 GiB) is for certain" in made.advice[0]


def test_what_vllm_and_lmcache_are_started_with() -> None:
    beside, added = plan().commands
    assert "--l1-size-gb=1.63 " in beside.line
    assert "--chunk-size=256 " in beside.line
    assert added.line.startswith("'--kv-transfer-config={")
    assert '"lmcache.mp.port":5555' in added.line
    assert "--port=5555 " in beside.line


def test_the_engine_is_measured_and_whole_documents_have_no_engine() -> None:
    assert plan(profile="engine").commands[0].line == "kvbench run --model=qwen2.5-1.5b --kv-tokens=21520 --host-tokens=48640"
    assert plan(profile="documents").commands == ()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"docs": 40, "doc_tokens": 777, "block_size": 32, "chunk_tokens": 128, "passes": "sequential,zipf:1.1,repeat", "seed": 3},
        {"question": "vary", "overlap": 0.25, "reuse": 0.5, "output_tokens": 40, "question_tokens": 30, "kv_tokens": 12_345, **RATES},
    ],
)
def test_the_run_that_measures_the_plan_has_the_tokens_it_foresees(options: dict[str, Any], tmp_path: Path) -> None:
    """Read as the command line reads it; simulated with 32 bits, which is what the engine keeps on a CPU."""
    made = plan(profile="engine", model="tiny", **options)
    _, name, *words = shlex.split(made.commands[0].line)
    params = build_run().make_context(name, words).params
    given = {name: value for name, value in params.items() if name in all_fields() and value}  # what is not given is empty
    config = load_config(None, {**given, "runner": "simulator", "profile": "engine", "dtype": "float32"})
    run = summarise(read_run(session.run(config, tmp_path / "run", Watcher(), []).path))
    tokens = [(row.arm, row.pass_label, row.device, row.host or 0, row.computed) for row in run.passes]
    assert tokens == [(row.arm, row.pass_label, row.device, row.host or 0, row.computed) for row in made.passes]
    assert sum(row.host or 0 for row in made.passes) > 0


def test_the_run_that_measures_the_plan_keeps_what_only_the_plan_was_told_out() -> None:
    made = plan(profile="engine", bytes_per_token=1000, host_gib=1.0, docs=12, pool_tokens="8000:16000", **RATES)
    assert made.commands[0].line == "kvbench run --model=qwen2.5-1.5b --kv-tokens=21520 --host-tokens=58368 --docs=12"


def test_notes_say_what_the_figures_mean(tmp_path: Path) -> None:
    assert any("--kv-dtype float32" in note for note in plan(profile="engine").notes)
    assert any("whole documents" in note for note in plan(profile="documents").notes)
    assert any("made for 32,768" in note for note in plan(model="qwen2.5-0.5b", doc_tokens=40_000, docs=2, kv_tokens=50_000).notes)


# a model, the user's documents


def test_bytes_per_token_stand_in_for_a_model() -> None:
    made = plan(bytes_per_token=1000)
    assert (made.kv.bytes_per_token, made.kv.model) == (1000, None)
    assert made.working_set.gib == pytest.approx(50_110_000 / 2**30)


def test_the_users_documents_are_read_with_the_models_tokenizer(small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three " * 40, encoding="utf-8")
    (tmp_path / "b.txt").write_text("four five " * 70, encoding="utf-8")
    options = {"documents": tmp_path, "kv_tokens": 320, "chunk_tokens": 16, "question_tokens": 0}
    made = plan(model=str(small_model), **options)
    assert made.documents == 2
    same = plan(model=str(small_model), bytes_per_token=made.kv.bytes_per_token, **options)
    assert same.passes == made.passes


# rates of a run


TRUE = Rates(prefill=8_000, restore=400_000, overhead_ms=6)


def linear(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    """The default run, with times exactly as :data:`TRUE` makes them."""
    answer = cyclic(arm, repeat, index, position, doc)
    device, host = answer.device or 0, answer.host or 0
    return Answer(TRUE.ttft_ms((device, host, PROMPT - device - host)) or 0.0, device, host)


def test_rates_are_those_of_the_run_to_calibrate_with_unless_given(tmp_path: Path) -> None:
    Made().write(tmp_path / "run", linear)
    fitted = plan(calibrate=tmp_path / "run").rates
    assert fitted is not None
    assert (fitted.prefill, fitted.restore, fitted.overhead_ms) == pytest.approx((8_000, 400_000, 6))
    assert fitted.fitted_to == str(tmp_path / "run")
    assert fitted.worst_error == pytest.approx(0, abs=1e-9)
    half = plan(calibrate=tmp_path / "run", prefill_rate=1000.0).rates
    assert half is not None
    assert (half.prefill, half.restore) == pytest.approx((1_000, 400_000))


def test_rates_of_another_model_or_of_half_a_run_are_said_to_be_that(tmp_path: Path) -> None:
    Made().write(tmp_path / "run", linear)
    measured = read_manifest(tmp_path / "run")["model"]["name"]
    assert not [note for note in plan(calibrate=tmp_path / "run", model=measured).notes if "fitted" in note]
    other = "the rates were fitted to a run of the model tiny, and this one is of qwen2.5-1.5b: the times are another model's"
    assert other in plan(calibrate=tmp_path / "run").notes
    assert other not in plan(calibrate=tmp_path / "run", bytes_per_token=4).notes  # no model is named
    Made().write(tmp_path / "half", linear)
    set_status(tmp_path / "half", "interrupted", [])
    assert "the run that the rates were fitted to is marked interrupted" in plan(calibrate=tmp_path / "half").notes


def test_a_run_that_never_loaded_does_not_tell_what_a_load_takes(tmp_path: Path) -> None:
    Made(arms={"none": None}).write(tmp_path / "run", linear)
    with pytest.raises(UsageError, match="none of its requests loaded from a host tier a known number of tokens; give --restore-rate"):
        plan(calibrate=tmp_path / "run")
    assert plan(calibrate=tmp_path / "run", restore_rate=5.0).rates is not None


# a running server


def test_a_server_tells_its_pool_its_blocks_and_its_version() -> None:
    with serving(Script(pool_tokens=21_504, block_size=32)) as server:
        made = plan(from_server=server.url, model="tiny")
    assert (made.pool.tokens, made.pool.units) == (21_504, 672)
    assert made.server is not None
    assert (made.server.url, made.server.model) == (server.url, "fake")
    assert [row.device for row in made.passes if row.arm == "none"] == [0, 0, 21_440]


def test_a_login_of_the_server_is_not_shown() -> None:
    with serving(Script(pool_tokens=21_504, block_size=32)) as server:
        made = plan(from_server=server.url.replace("://", "://user:geheim@"), model="tiny")
    assert made.server is not None
    assert made.server.url == server.url.replace("://", "://***@")
    with pytest.raises(UsageError, match=r"^--from-server ftp://\*\*\*@h:"):
        plan(from_server="ftp://user:geheim@h")


@pytest.mark.parametrize("given", [{"api_key_env": "THE_KEY"}, {"header": ("Authorization: Bearer geheim",)}])
def test_a_server_that_wants_to_know_who_is_asking_is_told(monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]) -> None:
    monkeypatch.setenv("THE_KEY", "geheim")
    with serving(Script(pool_tokens=21_504, block_size=32, api_key="geheim")) as server:
        assert plan(from_server=server.url, model="tiny", **given).pool.tokens == 21_504
        with pytest.raises(RunFailed, match=r"answered 401 .*with --url or --from-server, --api-key-env NAME or --header NAME:VALUE"):
            plan(from_server=server.url, model="tiny")


def test_who_is_asking_is_said_once_and_to_somebody() -> None:
    header = ("Authorization: Bearer geheim",)
    with pytest.raises(UsageError, match="--from-server with a login: another option says who is asking, too"):
        plan(from_server="http://user:geheim@h", model="tiny", header=header)
    with pytest.raises(ValueError, match=r"--header does not apply: no server is named \(--from-server\)"):
        plan(header=header)
    with pytest.raises(UsageError, match="header X-Of: a name and a value in plain ASCII"):
        plan(from_server="http://h", model="tiny", header=("X-Of: gehüim",))


def test_a_server_whose_model_is_not_here_is_told_so() -> None:
    with (
        serving(Script(pool_tokens=21_504, block_size=32)) as server,
        pytest.raises(UsageError, match="the server's model, fake, is no folder of this machine; name a copy"),
    ):
        plan(from_server=server.url)


def test_a_server_without_a_pool() -> None:
    with serving(Script()) as server, pytest.raises(RunFailed, match="does not tell the pool's size"):
        plan(from_server=server.url, model="tiny")


def test_documents_longer_than_the_server_takes() -> None:
    with serving(Script(pool_tokens=10**7)) as server, pytest.raises(UsageError, match="exceed the 131,072 that the server takes"):
        plan(from_server=server.url, model="tiny", doc_tokens=200_000, docs=2)


def test_nobody_answers() -> None:
    with serving() as server:
        url = server.url
    with pytest.raises(RunFailed, match=f"{url}/metrics: no answer"):
        plan(from_server=f"{url}/v1/", model="tiny")
