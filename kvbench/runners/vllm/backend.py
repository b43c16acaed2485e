"""What arms on vLLM are started from: an interpreter that serves, a model, and the pool that its servers have."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from kvbench.config.vllm import VllmOptions, prefix_cache_off
from kvbench.errors import OutOfMemory, RunFailed, UsageError
from kvbench.runners.base import LOG_IS, ArmSetup, Clock, DeviceCapacity
from kvbench.runners.http.admin_api import open_client
from kvbench.runners.http.client import Client, Patience
from kvbench.runners.servers.kinds.kind import ServedModel
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.vllm.arm_servers import ArmServers, check_arm
from kvbench.runners.vllm.installation import Installation, find_python, inspect
from kvbench.runners.vllm.lmcache import KNOWN_LMCACHE
from kvbench.runners.vllm.model import read_facts, resolve_model
from kvbench.runners.vllm.options import ServerOptions, parse_environment
from kvbench.runners.vllm.quiesce import Quiesce
from kvbench.runners.vllm.runner import VllmRunner
from kvbench.runners.vllm.tiers import GIB, LMCACHE_WATERMARK, TIERS, host_gib_for
from kvbench.runners.vllm.warmup import STORES_S, empty, warm_up

CPU_BLOCK_SIZE, GPU_BLOCK_SIZE = 32, 16
"""Tokens a block where only the pool's size is given: the smallest that vLLM takes on the CPU, and its default on a GPU."""


class VllmBackend:
    """The means to start a fresh vLLM server, and its LMCache server, for each arm and repeat."""

    nonce: str | None = None

    def __init__(self, config: VllmOptions, folder: Path, note: Callable[[str], None]) -> None:
        """Find the interpreter and the model, and start a server if only one can tell the capacity.

        Args:
            folder: where logs go.
            note: told what is being waited for.

        Raises:
            UsageError: the model or an option cannot be used.
            RunFailed: the interpreter cannot serve these arms, or the server does not start.
        """
        self._config, self._folder, self._note = config, folder, note
        self.chunk_tokens = config.tier_chunk_tokens
        self._installation: Installation = inspect(find_python(config.vllm_python))
        self._installation.require(lmcache=any(TIERS[tier].lmcache for tier in config.tiers))
        note(f"finding {config.model}")
        model = resolve_model(config.model, self._installation.python)
        self._facts = facts = read_facts(model, config.dtype, self._installation.python)
        self.vocab, self.tokenizer, self.bytes_per_token = facts.vocab, facts.folder / "tokenizer.json", facts.bytes_per_token
        self._options = self._server_options(model)
        for tier in config.tiers:  # before the first server starts
            check_arm(tier, self._options, self._installation)
        self._spare: ArmServers | None = None
        self._served: ServedModel | None = None
        self._warm_up_tokens = 1
        self.capacity = self._find_capacity()

    def profile(self, arm: str) -> str | None:
        """The profile ``vllm`` for the versions it was read from, models that keep every token, and the arms it describes.

        None for servers whose prefix cache is turned off.
        """
        known = not prefix_cache_off(self._config.vllm_arg) and self._facts.full_attention and KIND.is_known(self._installation.vllm)
        if arm == "cpu":
            known &= (self._installation.lmcache or "").startswith(f"{KNOWN_LMCACHE}.")
        return "vllm" if known and arm in ("none", "cpu") else None

    def host_room(self, tokens: int) -> int:
        """Tokens of a tier that keeps so many: LMCache begins to evict before it is full."""
        size = self._require_size()
        return int(host_gib_for(tokens * size, self.chunk_tokens * size) * GIB) // size

    def describe(self) -> dict[str, Any]:
        """``model`` and ``device`` as the manifest shows them, and ``weights_seed``."""
        facts, found = self._facts, self._installation
        model = {
            "name": self._config.model,
            "architecture": facts.architecture,
            "kv": None if facts.kv is None else facts.kv.formula,
            "dtype": facts.dtype,
            "bytes_per_token": self.bytes_per_token,
            "vocab": facts.vocab,
        }
        device = {
            "device": found.device,
            "gpu": found.accelerator,
            "server_packages": {"vllm": found.vllm, "lmcache": found.lmcache, "torch": found.torch},
        }
        return {"model": model, "device": device, "weights_seed": None}

    def check(self, name: str, prompt_tokens: int, output_tokens: int) -> None:
        """Refuse a request that is longer than the pool or the model allows."""
        size = f"{name}: {prompt_tokens:,} prompt and {output_tokens:,} output tokens"
        limits = [self._facts.max_tokens, None if self._served is None else self._served.max_tokens]
        longest = min((limit for limit in limits if limit is not None), default=None)
        if longest is not None and prompt_tokens + output_tokens > longest:
            raise UsageError(f"{size} exceed the {longest:,} that the server takes; {self._config.shorter}")
        usable = self.capacity.tokens - self.capacity.block_size  # vLLM never uses block 0
        if prompt_tokens + output_tokens > usable:
            raise UsageError(f"{size} exceed the pool's {usable:,} usable tokens; raise --kv-tokens, or {self._config.shorter}")

    def check_memory(self, arm: ArmSetup) -> None:
        """Refuse a tier that exceeds the memory there is."""
        needed, free = 0 if arm.host_tokens is None else arm.host_tokens * self._require_size(), psutil.virtual_memory().available
        if needed > free:
            raise OutOfMemory(
                f"a tier of {needed / GIB:.2f} GiB exceeds the {free / GIB:.2f} GiB that are free; lower --host-gib or --docs"
            )

    def warm_up(self, prompt_tokens: int) -> None:
        """Each server is warmed up when it has started, with a prompt of this length."""
        self._warm_up_tokens = prompt_tokens

    def start(self, arm: ArmSetup, repeat: int, clock: Clock) -> VllmRunner:
        """Fresh servers, warmed up and emptied again; ``RunFailed``: they do not start, have another pool, or are not emptied."""
        with ExitStack() as stack:
            servers = self._take_spare(arm, repeat) or self._started(arm, repeat)
            stack.callback(servers.stop)
            http = stack.enter_context(open_client(servers.headers))
            pool, asked = KIND.read_pool(http, servers.url), arm.device_tokens or self.capacity.tokens
            if pool != DeviceCapacity(asked, self.capacity.block_size):
                raise RunFailed(f"the server of arm {arm.name} has a pool of {pool.tokens:,} tokens, not {asked:,}; give --kv-tokens")
            salt = secrets.token_hex(8) if arm.tier == "redis" else None
            name, config = KIND.served_model(http, servers.url).name, self._config
            patience, ids = Patience(config.request_timeout), config.compares_outputs
            choices: dict[str, Any] = {"token_ids": ids, "cache_salt": salt, "endpoint": config.endpoint, "without": config.without}
            client = Client(servers.url, name, clock, servers.headers, patience, **choices)
            self._note(f"warming up arm {arm.name}")
            warm_up(client, "started", self.vocab, self._warm_up_tokens, config.in_flight)
            empty(http, servers.url, servers.lmcache_url)
            chunks = None if arm.host_tokens is None else int(arm.host_tokens * LMCACHE_WATERMARK) // self.chunk_tokens
            quiesce = Quiesce(http, servers.url, servers.lmcache_url, self.chunk_tokens, chunks, STORES_S)
            described = {"command": servers.describe(), "cache_salt": salt}
            return VllmRunner(client, quiesce, arm.tier != "none", described, servers, stack.pop_all(), TIERS[arm.tier].second)

    def close(self) -> None:
        """Stop the server that told the capacity, if no arm took it."""
        if self._spare is not None:
            self._spare.stop()

    def _find_capacity(self) -> DeviceCapacity:
        """The pool: told to the server, or read from one, which the first arm then uses if it has no tier."""
        options = self._options
        if options.blocks is not None and options.block_size is not None:
            return DeviceCapacity(options.blocks * options.block_size, options.block_size)
        self._spare = self._started(ArmSetup("none"), 0)
        try:
            with open_client(self._spare.headers) as http:
                self._served = KIND.served_model(http, self._spare.url)
                return KIND.read_pool(http, self._spare.url)
        except BaseException:  # nobody can close a backend that was never made
            self.close()
            raise

    def _take_spare(self, arm: ArmSetup, repeat: int) -> ArmServers | None:
        """The server that told the capacity, if this is the first arm and has no tier; otherwise it is stopped."""
        spare, self._spare = self._spare, None
        if spare is not None and (arm.name, repeat) != ("none", 0):
            spare.stop()
            return None
        return spare

    def _started(self, arm: ArmSetup, repeat: int) -> ArmServers:
        gib = None if arm.host_tokens is None else arm.host_tokens * self._require_size() / GIB
        options = replace(self._options, host_gib=gib, kv_tokens=arm.device_tokens or self._options.kv_tokens)
        servers = ArmServers(arm.tier, options, self._installation, self._folder, repeat, name=arm.name)
        self._note(f"starting vLLM for arm {arm.name}{LOG_IS}{', '.join(map(str, servers.logs))}")
        servers.start()
        return servers

    def _require_size(self) -> int:
        """KV bytes a token takes, for the size of a tier; ``UsageError`` where they are not known."""
        if self.bytes_per_token is None:
            raise UsageError(f"--model {self._config.model}: its KV is of a kind that has no rule, so no tier can be sized; --tier none")
        return self.bytes_per_token

    def _server_options(self, model: str) -> ServerOptions:
        config = self._config
        kv_tokens = None if config.kv_tokens == "auto" and not config.needs_small_pool else config.pool_tokens
        block_size = None if config.block_size == "auto" else config.block_size
        if kv_tokens is not None and block_size is None:
            block_size = CPU_BLOCK_SIZE if self._installation.device == "cpu" else GPU_BLOCK_SIZE
        return ServerOptions(
            model=model,
            dtype=config.dtype,
            kv_tokens=kv_tokens,
            block_size=block_size,
            chunk_tokens=self.chunk_tokens,
            disk=config.disk,
            redis=config.redis,
            arguments=config.vllm_arg,
            environment=parse_environment(config.env),
            startup_s=config.startup_timeout,
        )
