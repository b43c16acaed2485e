"""Servers that were there before: driven and read, and left as they are."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kvbench.config.secrets import mask_value
from kvbench.config.vllm import VllmOptions
from kvbench.errors import UsageError
from kvbench.runners.base import ArmSetup, Clock, DeviceCapacity
from kvbench.runners.http.address import Address, authorised, request_headers, split_login
from kvbench.runners.http.admin_api import open_client
from kvbench.runners.http.client import Client, Patience
from kvbench.runners.servers.kinds.kind import ServedModel
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.vllm.model import ModelFacts, read_facts
from kvbench.runners.vllm.quiesce import Quiesce
from kvbench.runners.vllm.runner import VllmRunner
from kvbench.runners.vllm.warmup import STORES_S, empty, warm_up

LOCAL_PYTHON = Path("python3")


@dataclass(frozen=True, slots=True)
class Attached:
    """A server as both clients reach it: the address, without ``/v1`` and without a login, and what is sent with every request."""

    url: str
    headers: Mapping[str, str]


class AttachedBackend:
    """One running server for each arm. Nothing of them is reset unless it is allowed; a nonce makes everything new to them instead.

    It is each request's ``cache_salt``, which vLLM makes part of every key of its cache and of those behind it; and part of the seed of
    synthetic documents, should a server not know that. vLLM refuses a salt that holds ``/``, ``\\`` or ``@``, or is longer than 128
    characters.
    """

    def __init__(self, config: VllmOptions, note: Callable[[str], None]) -> None:
        """Ask each server what it serves.

        Args:
            note: told what is being waited for.

        Raises:
            UsageError: an arm has no server, or two share one; an address or a header is none; the servers differ, or nothing tells the
                vocabulary.
            RunFailed: one does not answer.
        """
        self._config, self._note = config, note
        self.chunk_tokens = config.tier_chunk_tokens
        self.nonce: str | None = secrets.token_hex(8)
        self._servers = _servers(config)
        served, pools = {}, {}
        for arm, server in self._servers.items():
            note(f"asking {server.url}")
            with open_client(server.headers) as http:
                served[arm], pools[arm] = KIND.served_model(http, server.url), KIND.read_pool(http, server.url)
        _require_same("model", {arm: model.name for arm, model in served.items()})
        self._served: ServedModel = served[config.arms[0]]
        self._pools = pools
        alike = {arm: pool for arm, pool in pools.items() if arm != config.roomy_arm} or pools
        _require_same("pool", {arm: f"{pool.tokens} tokens in blocks of {pool.block_size}" for arm, pool in alike.items()})
        self.capacity: DeviceCapacity = next(iter(alike.values()))
        self._facts = facts = _find_facts(config, self._served)
        self.tokenizer = (Path(config.model) if facts is None else facts.folder) / "tokenizer.json"
        self.bytes_per_token = None if facts is None else facts.bytes_per_token
        self._warm_up_tokens = 1

    @property
    def vocab(self) -> int:
        """Token ids are below this; ``UsageError`` where nothing tells it."""
        found = self._config.vocab or (self._facts and self._facts.vocab)
        if not found:
            raise UsageError(
                f"--url: the model {self._served.name} is no folder here, so its vocabulary is unknown; give --vocab N or --model FOLDER"
            )
        return found

    def profile(self, arm: str) -> str | None:
        """The profile ``vllm`` for the version it was read from. What a tier holds is not known, so only ``none`` is foreseen."""
        keeps_every_token = self._facts is None or self._facts.full_attention
        return "vllm" if arm == "none" and keeps_every_token and KIND.is_known(self._served.version) else None

    def host_room(self, tokens: int) -> int:
        """The tier is as it is."""
        return tokens

    def describe(self) -> dict[str, Any]:
        """``model`` and ``device`` as the manifest shows them, and ``weights_seed``. The machine of the servers is not known."""
        model = {"name": self._served.name, "bytes_per_token": self.bytes_per_token, "vocab": self.vocab}
        return {"model": model, "device": {"device": None, "server_packages": {"vllm": self._served.version}}, "weights_seed": None}

    def check(self, name: str, prompt_tokens: int, output_tokens: int) -> None:
        """Refuse a request that the server would refuse."""
        longest = self._served.max_tokens
        if longest is not None and prompt_tokens + output_tokens > longest:
            size = f"{name}: {prompt_tokens:,} prompt and {output_tokens:,} output tokens"
            raise UsageError(f"{size} exceed the {longest:,} that the server takes; {self._config.shorter}")

    def check_memory(self, arm: ArmSetup) -> None:
        """The servers have theirs; ``UsageError`` for one that must have a pool of its own, and has a smaller one."""
        pool = self._pools[arm.name]
        if arm.device_tokens is not None and pool.tokens < arm.device_tokens:
            raise UsageError(
                f"--url {arm.name}: all requests at their end need a pool of {arm.device_tokens:,} tokens, the server's has "
                f"{pool.tokens:,}; start it with a larger one, or lower --requests"
            )

    def warm_up(self, prompt_tokens: int) -> None:
        """Each server is warmed up when its arm starts, with a prompt of this length."""
        self._warm_up_tokens = prompt_tokens

    def start(self, arm: ArmSetup, repeat: int, clock: Clock) -> VllmRunner:
        """The arm's server, warmed up, and emptied if that is allowed; ``RunFailed``: it does not answer, or is not emptied."""
        server = self._servers[arm.name]
        with ExitStack() as stack:
            http = stack.enter_context(open_client(server.headers))
            config, name, salt = self._config, self._served.name, f"{self.nonce}-{repeat}"
            patience, ids = Patience(config.request_timeout), config.compares_outputs
            choices: dict[str, Any] = {"token_ids": ids, "cache_salt": salt, "endpoint": config.endpoint, "without": config.without}
            client = Client(server.url, name, clock, server.headers, patience, **choices)
            self._note(f"warming up arm {arm.name}")
            warm_up(client, f"{self.nonce}/{arm.name}/{repeat}", self.vocab, self._warm_up_tokens, config.in_flight)
            if config.allow_reset:
                empty(http, server.url, None)
            quiesce = Quiesce(http, server.url, None, self.chunk_tokens, None, STORES_S)
            own_pool = {} if arm.device_tokens is None else {"device_tokens": self._pools[arm.name].tokens}
            described = {"command": None, "url": server.url} | own_pool
            return VllmRunner(client, quiesce, arm.tier != "none", described, None, stack.pop_all())

    def close(self) -> None:
        """Nothing of the servers is ours."""


def _servers(config: VllmOptions) -> dict[str, Attached]:
    """The server of each arm.

    Raises ``UsageError``, which shows no login: one is missing, named twice or shared, or an address or a header cannot be used.
    """
    headers = request_headers(config.header, config.api_key_env)
    servers: dict[str, Attached] = {}
    places = set()
    for word in config.url:
        arm, equals, url = word.partition("=")
        shown = mask_value("url", word)
        if not equals or not url.startswith(("http://", "https://")):
            raise UsageError(f"--url {shown}: ARM=http://HOST:PORT is expected, such as none=http://127.0.0.1:8000")
        if arm not in config.arms:
            raise UsageError(f"--url {shown}: {arm} is no arm of this run; name it with {config.arm_option} {arm}")
        url, login = split_login(url)
        url = url.rstrip("/").removesuffix("/v1").rstrip("/")
        place = _place(arm, url)
        if arm in servers or place in places:
            raise UsageError(f"--url {shown}: each arm needs a server of its own, named once")
        places.add(place)
        servers[arm] = Attached(url, authorised(headers, login, f"--url {arm} with a login") if login else headers)
        Address(url, servers[arm].headers)  # refuses what HTTP cannot carry before anything is sent
    missing = next((arm for arm in config.arms if arm not in servers), None)
    if missing is not None:
        raise UsageError(f"--url names no server for arm {missing}; give --url {missing}=URL, or leave the arm out ({config.arm_option})")
    return servers


def _place(arm: str, url: str) -> tuple[str, int, str]:
    """Host, port and path: what makes a server another one, however its address is spelled.

    Raises:
        UsageError: it is no address. It is not shown: what stands in it may be the rest of a password.
    """
    with suppress(UsageError):
        if "@" not in url:
            address = Address(url, {})
            return address.host, address.port, urlsplit(url).path
    raise UsageError(f"--url {arm}: http://[USER:PASSWORD@]HOST:PORT is expected; in a password, / # ? % are %2F %23 %3F %25")


def _require_same(what: str, found: Mapping[str, str]) -> None:
    """Refuse servers that cannot be compared."""
    if len(set(found.values())) > 1:
        raise UsageError(f"--url: the servers differ in their {what} ({', '.join(f'{arm}: {value}' for arm, value in found.items())})")


def _find_facts(config: VllmOptions, served: ServedModel) -> ModelFacts | None:
    """The model's own facts, where its folder is on this machine: as ``--model`` names it, or as the server does."""
    for name in (config.model if "model" in config.model_fields_set else "", served.root or ""):
        if name and Path(name).is_dir():
            try:
                return read_facts(name, "auto", LOCAL_PYTHON)
            except UsageError:
                continue
    return None
