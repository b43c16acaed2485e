"""Every tier's exact command lines and environments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.runners.vllm.installation import Installation
from kvbench.runners.vllm.options import ServerOptions, parse_environment
from kvbench.runners.vllm.tiers import GIB, TIERS, Ports, RedisAddress, host_gib_for, lmcache_launch, redis_address, vllm_launch

CPU = Installation(Path("/v/bin/python"), "0.32.0", "0.5.6", "2.13.0", "cpu", 0, None)
GPU = replace(CPU, device="cuda", devices=1, accelerator="H200")
PORTS = Ports(vllm=8001, lmcache=5555, lmcache_http=9001)
OPTIONS = ServerOptions(
    model="/m/tiny",
    dtype="bfloat16",
    kv_tokens=21520,
    block_size=32,
    max_model_len=8192,
    host_gib=0.5,
    disk=Path("/d"),
    redis="redis://u:geheim@r:7000",
)

VLLM = [
    "/v/bin/python",
    "-m",
    "vllm.entrypoints.openai.api_server",
    "--host=127.0.0.1",
    "--port=8001",
    "--model=/m/tiny",
    "--dtype=bfloat16",
    "--max-model-len=8192",
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--block-size=32",
    "--num-gpu-blocks-override=672",
]
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"} | {
    "LMCACHE_TRACK_USAGE": "false",
    "LMCACHE_DISABLE_BANNER": "1",
}
ON_CPU = {"VLLM_CPU_OMP_THREADS_BIND": "auto", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
LMCACHE = [
    "/v/bin/python",
    "-m",
    "lmcache.cli.main",
    "server",
    "--host=127.0.0.1",
    "--port=5555",
    "--http-host=127.0.0.1",
    "--http-port=9001",
    "--chunk-size=256",
    "--l1-size-gb=0.5",
    "--eviction-policy=LRU",
    "--supported-transfer-mode=auto",
]
CONNECTED = (
    '--kv-transfer-config={"kv_connector":"LMCacheMPConnector","kv_role":"kv_both",'
    '"kv_connector_extra_config":{"lmcache.mp.host":"tcp://127.0.0.1","lmcache.mp.port":5555}}'
)


def test_no_tier() -> None:
    launch = vllm_launch("none", OPTIONS, CPU, PORTS)
    assert list(launch.command) == [*VLLM, "--enforce-eager"]
    assert launch.environment == {**OFFLINE, "VLLM_SERVER_DEV_MODE": "1", "VLLM_API_KEY": "", **ON_CPU}
    assert lmcache_launch("none", OPTIONS, CPU, PORTS) is None


def test_on_a_gpu_the_server_compiles_and_chooses_its_threads() -> None:
    launch = vllm_launch("none", OPTIONS, GPU, PORTS)
    assert list(launch.command) == VLLM
    assert launch.environment == {**OFFLINE, "VLLM_SERVER_DEV_MODE": "1", "VLLM_API_KEY": ""}


def test_what_is_not_given_is_left_to_the_server() -> None:
    launch = vllm_launch("none", ServerOptions(model="org/model"), GPU, PORTS)
    assert list(launch.command) == [*VLLM[:5], "--model=org/model", "--dtype=auto", "--max-model-len=auto", *VLLM[8:10]]


@pytest.mark.parametrize(
    ("tier", "adapter"),
    [
        ("cpu", []),
        ("disk", ['--l2-adapter={"type":"fs","base_path":"/d"}']),
        ("redis", ['--l2-adapter={"type":"resp","host":"r","port":7000}']),
    ],
)
def test_lmcache_in_a_process_of_its_own(tier: str, adapter: list[str]) -> None:
    assert list(vllm_launch(tier, OPTIONS, CPU, PORTS).command) == [*VLLM, "--enforce-eager", CONNECTED]
    server = lmcache_launch(tier, OPTIONS, CPU, PORTS)
    assert server is not None
    assert list(server.command) == [*LMCACHE, *adapter]
    login = {"LMCACHE_RESP_USERNAME": "u", "LMCACHE_RESP_PASSWORD": "geheim"} if tier == "redis" else {}
    assert server.environment == {**OFFLINE, **login}


def test_lmcache_inside_vllm() -> None:
    launch = vllm_launch("lmcache-inproc", OPTIONS, GPU, PORTS)
    assert list(launch.command) == [*VLLM, '--kv-transfer-config={"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}']
    expected = {"LMCACHE_CHUNK_SIZE": "256", "LMCACHE_LOCAL_CPU": "True", "LMCACHE_MAX_LOCAL_CPU_SIZE": "0.5", "PYTHONHASHSEED": "0"}
    assert expected.items() <= launch.environment.items()
    assert lmcache_launch("lmcache-inproc", OPTIONS, GPU, PORTS) is None


def test_native_offloading() -> None:
    launch = vllm_launch("native", replace(OPTIONS, host_gib=8), GPU, PORTS)
    assert list(launch.command) == [*VLLM, "--kv-offloading-size=8", "--kv-offloading-backend=native"]
    assert TIERS["native"].device == "cuda"


def test_all_arms_compute_on_the_same_threads() -> None:
    binds = {name: vllm_launch(name, replace(OPTIONS, cpu_threads="0-1"), CPU, PORTS).environment for name in TIERS}
    assert {env["VLLM_CPU_OMP_THREADS_BIND"] for env in binds.values()} == {"0-1"}
    assert {env["VLLM_CPU_NUM_OF_RESERVED_CPU"] for env in binds.values()} == {"0"}


def test_the_users_arguments_and_environment_win() -> None:
    options = replace(OPTIONS, arguments=("--dtype=float16",), environment={"HF_HUB_OFFLINE": "0", "VLLM_CPU_KVCACHE_SPACE": "4"})
    for tier in TIERS:
        launch = vllm_launch(tier, options, CPU, PORTS)
        assert launch.command[-1] == "--dtype=float16"
        assert (launch.environment["HF_HUB_OFFLINE"], launch.environment["VLLM_CPU_KVCACHE_SPACE"]) == ("0", "4")
    server = lmcache_launch("cpu", options, CPU, PORTS)
    assert server is not None
    assert server.environment["HF_HUB_OFFLINE"] == "0"


@pytest.mark.parametrize(
    ("tier", "options", "words"),
    [
        ("cpu", replace(OPTIONS, host_gib=None), "--host-gib: the tier needs a size above 0"),
        ("native", replace(OPTIONS, host_gib=0), "--host-gib: the tier needs a size above 0"),
        ("disk", replace(OPTIONS, disk=None), "--tier disk needs a folder"),
        ("redis", replace(OPTIONS, redis=None), "--tier redis needs the address"),
        ("cpu", replace(OPTIONS, model="/m/a@b"), "LMCache refuses a name with @"),
        ("none", replace(OPTIONS, block_size=None), "--kv-tokens needs --block-size"),
        ("none", replace(OPTIONS, kv_tokens=63), "vLLM needs two blocks of --block-size 32"),
    ],
)
def test_what_a_tier_needs(tier: str, options: ServerOptions, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        (vllm_launch(tier, options, CPU, PORTS), lmcache_launch(tier, options, CPU, PORTS))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("redis://127.0.0.1:6379", RedisAddress("127.0.0.1", 6379, "", "")),
        ("redis://cache", RedisAddress("cache", 6379, "", "")),
        ("redis://:secret@cache:1/", RedisAddress("cache", 1, "", "secret")),
        ("redis://a%3Ab:ge%2F%23%3F%40%25heim@cache", RedisAddress("cache", 6379, "a:b", "ge/#?@%heim")),
        ("redis://:geheim@nis@cache", RedisAddress("cache", 6379, "", "geheim@nis")),
    ],
)
def test_addresses_of_redis(text: str, address: RedisAddress) -> None:
    assert redis_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "cache:6379", "http://cache", "redis://", "redis://u:geheim@cache:port", "redis://cache/geheim", "redis://:ge/heim@cache"],
)
def test_what_is_no_address_of_redis_is_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        redis_address(text)
    expected = "--redis: redis://[USER:PASSWORD@]HOST[:PORT] is expected; in a password, / # ? % are %2F %23 %3F %25"
    assert str(caught.value) == expected


@given(st.integers(0, 2**44), st.integers(0, 2**30))
def test_the_whole_working_set_stays_below_the_watermark(working_set: int, chunk: int) -> None:
    gib = host_gib_for(working_set, chunk)
    assert working_set + chunk < 0.8 * gib * GIB
    server = lmcache_launch("cpu", replace(OPTIONS, host_gib=gib), CPU, PORTS)
    assert server is not None
    assert f"--l1-size-gb={gib!r}".removesuffix(".0") in server.command


def test_the_size_of_the_known_experiment() -> None:
    # 10 documents of 19 chunks of 256 tokens of 4,096 bytes: 190 MiB, and 0.25 GiB x 0.8 = 204.8 MiB.
    assert host_gib_for(10 * 19 * 256 * 4096) == 0.25


def test_environment_words() -> None:
    assert parse_environment(("A=1", "B=x=y", "C=")) == {"A": "1", "B": "x=y", "C": ""}
    for word in ("A", "=1", ""):
        with pytest.raises(UsageError, match="NAME=VALUE is expected"):
            parse_environment((word,))


def test_every_tiers_json_is_json() -> None:
    for name in ("cpu", "lmcache-inproc"):
        word = vllm_launch(name, OPTIONS, CPU, PORTS).command[-1]
        assert json.loads(word.partition("=")[2])["kv_role"] == "kv_both"


@pytest.mark.parametrize(
    ("arguments", "environment", "key"),
    [
        ((), {}, None),
        (("--api-key=a",), {}, "a"),
        (("--api-key", "a", "--x"), {}, "a"),
        (("--api_key=a=b",), {"VLLM_API_KEY": "c"}, "a=b"),
        (("--api-key", "a", "--api-key=b"), {}, "b"),
        (("--api-keys=a", "--api-key"), {"VLLM_API_KEY": "c"}, "c"),
        ((), {"VLLM_API_KEY": ""}, None),
    ],
)
def test_the_key_that_a_server_is_told_to_ask_for_is_known(
    arguments: tuple[str, ...], environment: dict[str, str], key: str | None
) -> None:
    assert replace(OPTIONS, arguments=arguments, environment=environment).api_key == key
