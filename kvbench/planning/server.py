"""A running vLLM server as a plan sees it: its pool, its block size, its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.config.secrets import mask_login
from kvbench.errors import RunFailed, UsageError
from kvbench.models.shapes import SHAPES
from kvbench.planning.result import PlannedServer


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server told. ``root`` is where its model was loaded from, as the server names it."""

    server: PlannedServer
    root: str | None
    block_size: int
    blocks: int

    def model(self) -> str:
        """The served model, where this machine has its configuration; ``UsageError``: it does not."""
        for name in (self.root, self.server.model):
            if name is not None and (name in SHAPES or Path(name).is_dir()):
                return name
        served = self.root or self.server.model
        raise UsageError(
            f"--from-server: the server's model, {served}, is no folder of this machine; name a copy of it, of which only config.json is "
            "read (--model FOLDER), or its KV (--bytes-per-token N)"
        )


def ask_server(url: str, headers: Sequence[str] = (), api_key_env: str | None = None) -> ServerFacts:
    """Read a server's capacity from ``/metrics``, its model from ``/v1/models`` and its version.

    ``url``: its address, perhaps with a login. ``headers``: sent with every request, ``NAME:VALUE`` each. ``api_key_env``: the environment
    variable that holds its key.

    Raises ``UsageError``: it is no address, a header cannot be sent, or the variable holds no key; ``RunFailed``: nobody answers, or not as
    vLLM does.
    """
    from kvbench.runners.http.address import Address, authorised, request_headers, split_login
    from kvbench.runners.http.admin_api import open_client
    from kvbench.runners.servers.kinds.kind import KINDS

    address = url.rstrip("/").removesuffix("/v1").removesuffix("/metrics")
    shown = mask_login(address)
    if not address.startswith(("http://", "https://")):
        raise UsageError(f"--from-server {mask_login(url)}: not the address of a server; it should look like http://127.0.0.1:8000")
    sent = request_headers(headers, api_key_env)
    address, login = split_login(address)
    if login:
        sent = authorised(sent, login, "--from-server with a login")
    if sent and "@" not in address:  # an address with half a login is refused below, and nothing of it shown
        Address(address, sent)  # refuses what HTTP cannot carry
    kind = KINDS["vllm"]
    with open_client(sent) as client:
        capacity = kind.scrape(client, address).capacity
        served = kind.served_model(client, address)
    if capacity is None or min(capacity.block_size, capacity.tokens) < 1:
        raise RunFailed(
            f"{shown}/metrics does not tell the pool's size (vllm:cache_config_info); give --kv-tokens and --block-size instead"
        )
    planned = PlannedServer(shown, served.name, served.max_tokens, served.version)
    return ServerFacts(planned, served.root, capacity.block_size, capacity.tokens // capacity.block_size)
