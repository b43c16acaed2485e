"""The arms: which servers a tier needs, as exact command lines and environments. Nothing is started here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit

from kvbench.errors import UsageError
from kvbench.runners.vllm.installation import Installation
from kvbench.runners.vllm.metric_names import (
    DEVELOPMENT,
    LMCACHE_MODULE,
    LMCACHE_WATERMARK,
    OFFLINE,
    REDIS_PASSWORD,
    REDIS_USER,
    VLLM_MODULE,
)
from kvbench.runners.vllm.options import ServerOptions

GIB = 2**30
GIB_STEP = 1 / 16


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the servers of an arm listen, on loopback."""

    vllm: int
    lmcache: int
    """Where vLLM's connector finds LMCache."""

    lmcache_http: int
    """Its status, metrics and resets."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One process: its exact command line, and what is set over the environment it inherits."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Tier:
    """A level of what varies.

    Attributes:
        describes: for people.
        lmcache: whether vLLM's interpreter needs LMCache.
        device: what it needs to run on; ``None``: anything.
        vllm: adds vLLM's arguments and environment.
        server: the arguments of the LMCache server that runs beside vLLM; ``None``: there is none.
    """

    describes: str
    lmcache: bool
    device: str | None
    vllm: Callable[[ServerOptions, Ports], Launch]
    server: Callable[[ServerOptions], Launch] | None


def host_gib_for(working_set_bytes: int, chunk_bytes: int = 0) -> float:
    """The smallest first tier, in GiB, in which LMCache keeps the whole working set: it evicts from a watermark on.

    Args:
        working_set_bytes: KV of all chunks that will be stored.
        chunk_bytes: one chunk more than that may be there for a moment.
    """
    needed = (working_set_bytes + chunk_bytes + 1) / LMCACHE_WATERMARK / GIB
    return math.ceil(needed / GIB_STEP) * GIB_STEP


def vllm_launch(tier: str, options: ServerOptions, installation: Installation, ports: Ports) -> Launch:
    """vLLM's command line and environment on this arm.

    Raises:
        UsageError: an option that the arm needs is missing or wrong.
    """
    added = TIERS[tier].vllm(options, ports)
    on_cpu = installation.device == "cpu"
    command = [str(installation.python), "-m", VLLM_MODULE, "--host=127.0.0.1", f"--port={ports.vllm}", f"--model={options.model}"]
    command += [f"--dtype={options.dtype}", f"--max-model-len={options.max_model_len or 'auto'}"]
    command += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
    if options.block_size is not None:
        command.append(f"--block-size={options.block_size}")
    if options.blocks is not None:
        command.append(f"--num-gpu-blocks-override={options.blocks}")
    if on_cpu:
        command.append("--enforce-eager")  # else every start compiles for minutes
    environment = {**OFFLINE, **DEVELOPMENT, **(_cpu_environment(options) if on_cpu else {})}
    return Launch((*command, *added.command, *options.arguments), {**environment, **added.environment, **options.environment})


def lmcache_launch(tier: str, options: ServerOptions, installation: Installation, ports: Ports) -> Launch | None:
    """The command line and environment of the LMCache server on this arm; ``None`` where it has none.

    Raises:
        UsageError: an option that the arm needs is missing or wrong.
    """
    server = TIERS[tier].server
    if server is None:
        return None
    added = server(options)
    command = [str(installation.python), "-m", LMCACHE_MODULE, "server", "--host=127.0.0.1", f"--port={ports.lmcache}"]
    command += ["--http-host=127.0.0.1", f"--http-port={ports.lmcache_http}", f"--chunk-size={options.chunk_tokens}"]
    command += [f"--l1-size-gb={_host_gib(options):.12g}", "--eviction-policy=LRU"]
    command.append("--supported-transfer-mode=auto")  # with the default a vLLM on the CPU waits for ever
    return Launch((*command, *added.command), {**OFFLINE, **added.environment, **options.environment})


def _cpu_environment(options: ServerOptions) -> dict[str, str]:
    """What a server on the CPU needs for a fair comparison.

    By default vLLM keeps a core for its front end, and one more where a tier is configured: arms would compute on unlike threads. And it
    takes nearly all memory for its pool: here 1 GiB, where the number of blocks does not decide it.
    """
    return {"VLLM_CPU_OMP_THREADS_BIND": options.cpu_threads, "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}


def _plain(_options: ServerOptions, _ports: Ports) -> Launch:
    return Launch((), {})


def _multi_process(options: ServerOptions, ports: Ports) -> Launch:
    _check_model_name(options)
    extra = {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": ports.lmcache}
    return Launch((_transfer("LMCacheMPConnector", kv_connector_extra_config=extra),), {})


def _in_process(options: ServerOptions, _ports: Ports) -> Launch:
    environment = {
        "LMCACHE_CHUNK_SIZE": str(options.chunk_tokens),
        "LMCACHE_LOCAL_CPU": "True",
        "LMCACHE_MAX_LOCAL_CPU_SIZE": f"{_host_gib(options):.12g}",
        "PYTHONHASHSEED": "0",  # its keys are Python hashes, and must be the same in all its processes
    }
    return Launch((_transfer("LMCacheConnectorV1"),), environment)


def _native(options: ServerOptions, _ports: Ports) -> Launch:
    return Launch((f"--kv-offloading-size={_host_gib(options):.12g}", "--kv-offloading-backend=native"), {})


def _memory_only(_options: ServerOptions) -> Launch:
    return Launch((), {})


def _with_disk(options: ServerOptions) -> Launch:
    if options.disk is None:
        raise UsageError("--tier disk needs a folder for its files: --disk FOLDER")
    return Launch((_adapter(type="fs", base_path=str(options.disk)),), {})


def _with_redis(options: ServerOptions) -> Launch:
    address = redis_address(options.redis)
    login = {REDIS_USER: address.user, REDIS_PASSWORD: address.password}
    return Launch((_adapter(type="resp", host=address.host, port=address.port),), {name: word for name, word in login.items() if word})


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a Redis server is, and the login, empty where it wants none."""

    host: str
    port: int
    user: str
    password: str


def redis_address(text: str | None) -> RedisAddress:
    """Read ``redis://[USER:PASSWORD@]HOST[:PORT]``; in the login, ``%2F`` is a ``/``, as in any URL.

    Raises:
        UsageError: it is missing, or no such address. The message does not repeat it, as it may hold a password.
    """
    if text is None:
        raise UsageError("--tier redis needs the address of a Redis server: --redis redis://HOST:PORT")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme != "redis" or not parts.hostname or parts.path.strip("/"):
        raise UsageError("--redis: redis://[USER:PASSWORD@]HOST[:PORT] is expected; in a password, / # ? % are %2F %23 %3F %25")
    return RedisAddress(parts.hostname, port or 6379, unquote(parts.username or ""), unquote(parts.password or ""))


def _host_gib(options: ServerOptions) -> float:
    if options.host_gib is None or options.host_gib <= 0:
        raise UsageError("--host-gib: the tier needs a size above 0")
    return options.host_gib


def _check_model_name(options: ServerOptions) -> None:
    if "@" in options.model:
        raise UsageError(f"--model {options.model}: LMCache refuses a name with @; move or link the folder to another name")


def _transfer(connector: str, **more: object) -> str:
    return f"--kv-transfer-config={_json({'kv_connector': connector, 'kv_role': 'kv_both', **more})}"


def _adapter(**fields: object) -> str:
    return f"--l2-adapter={_json(fields)}"


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


TIERS = MappingProxyType(
    {
        "none": Tier("the device pool only", False, None, _plain, None),
        "cpu": Tier("LMCache in host memory, multi-process mode", True, None, _multi_process, _memory_only),
        "lmcache-inproc": Tier("LMCache in host memory, inside the vLLM process", True, None, _in_process, None),
        "disk": Tier("LMCache in host memory, then a folder", True, None, _multi_process, _with_disk),
        "redis": Tier("LMCache in host memory, then a Redis server", True, None, _multi_process, _with_redis),
        "native": Tier("vLLM's own offloading to host memory", False, "cuda", _native, None),
    }
)
"""Every arm by its name."""
