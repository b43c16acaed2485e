"""``kvbench serve``: start the servers that a run would start, for use by hand."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.cli import output
from kvbench.cli.commands import OutputFile, build_command, terminable
from kvbench.cli.options import with_options
from kvbench.config.serve import ServeConfig
from kvbench.config.settings import load

if TYPE_CHECKING:
    from kvbench.runners.vllm.arm_servers import ArmServers
    from kvbench.runners.vllm.installation import Installation
    from kvbench.runners.vllm.options import ServerOptions

WATCH_S = 0.5
"""Between two looks whether the servers still run."""


def serve(file: OutputFile = None, **given: Any) -> None:
    """Start the servers that a run would start, for use by hand.

    Prints their addresses, and the exact command lines and environment to copy into a deployment. Ctrl-C stops them (SIGTERM too), and
    nothing survives this command.

    Exit codes: 0 stopped by Ctrl-C or SIGTERM, 1 a server did not start or ended, 2 usage error.
    """
    from kvbench.runners.base import LOG_IS
    from kvbench.runners.vllm.arm_servers import ArmServers
    from kvbench.runners.vllm.installation import find_python, inspect

    config = load(ServeConfig, "kvbench serve", None, {}, given)
    installation = inspect(find_python(config.vllm_python))
    options = server_options(config, installation)
    folder = _log_folder(config.logs)
    try:
        servers = ArmServers(config.tier, options, installation, folder, port=config.port)
        output.say(f"starting vLLM for arm {config.tier}{LOG_IS}{', '.join(map(str, servers.logs))}")
        with terminable(), servers:
            output.write(_describe(servers, folder), file)
            while True:
                servers.check_alive()
                time.sleep(WATCH_S)
    except KeyboardInterrupt:
        output.write("\nStopped.\n")
    finally:
        if config.logs is None:
            with suppress(OSError):  # it holds logs, to which the user was pointed
                folder.rmdir()


def server_options(config: ServeConfig, installation: Installation) -> ServerOptions:
    """What the servers are told.

    Raises:
        UsageError: the model cannot be used, or its KV is of a kind in which no tier can be sized in tokens.
        RunFailed: the interpreter cannot serve this tier.
    """
    from kvbench.runners.vllm.model import resolve_model
    from kvbench.runners.vllm.options import ServerOptions, parse_environment
    from kvbench.runners.vllm.tiers import TIERS

    environment = parse_environment(config.env)
    installation.require(lmcache=TIERS[config.tier].lmcache)
    model = resolve_model(config.model, installation.python)
    return ServerOptions(
        model=model,
        dtype=config.dtype,
        kv_tokens=None if config.kv_tokens == "auto" else config.kv_tokens,
        block_size=None if config.block_size == "auto" else config.block_size,
        max_model_len=config.max_model_len,
        chunk_tokens=config.chunk_tokens,
        host_gib=_host_gib(config, model, installation),
        disk=config.disk,
        redis=config.redis,
        arguments=config.vllm_arg,
        environment=environment,
        startup_s=config.startup_timeout,
    )


def _host_gib(config: ServeConfig, model: str, installation: Installation) -> float:
    """The tier's memory; of a size in tokens, as many as the model's KV takes."""
    from kvbench.errors import UsageError
    from kvbench.runners.vllm.model import read_facts

    if config.host_tokens is None:
        return config.host_gib
    kv = read_facts(model, config.dtype, installation.python).kv
    if kv is None:
        raise UsageError(f"--model {config.model}: its KV is of a kind that has no rule; give --host-gib instead of --host-tokens")
    return kv.gib(config.host_tokens)


def _log_folder(given: Path | None) -> Path:
    from kvbench.errors import UsageError

    if given is None:
        return Path(tempfile.mkdtemp(prefix="kvbench-serve-"))
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--logs {given}: cannot be made ({error.strerror}); name a folder you may write to") from None
    return given


def _describe(servers: ArmServers, folder: Path) -> str:
    """Addresses, sizes, and what to copy."""
    from kvbench.runners.http.admin_api import open_client
    from kvbench.runners.servers.kinds.vllm import KIND
    from kvbench.runners.vllm.tiers import TIERS

    with open_client(servers.headers) as client:
        model, capacity = KIND.served_model(client, servers.url), KIND.scrape(client, servers.url).capacity
    lines = [f"vLLM {model.version or '–'}, arm {servers.tier} ({TIERS[servers.tier].describes})"]
    lines.append(f"Address:   {servers.url}/v1, model {model.name}")
    if servers.lmcache_url is not None:
        lines.append(f"LMCache:   {servers.lmcache_url}/status")
    if capacity is not None:
        lines.append(f"Pool:      {capacity.tokens:,} tokens, {capacity.tokens // capacity.block_size:,} blocks of {capacity.block_size}")
    if model.max_tokens is not None:
        lines.append(f"Longest:   {model.max_tokens:,} tokens, prompt and output together")
    lines += [f"Logs:      {folder}", "", "To start the same without kvbench, in this order, each in a shell of its own:", ""]
    launches = [servers.lmcache_launch, servers.vllm_launch]
    lines += [word for launch in launches if launch is not None for word in (launch.shell_line(), "")]
    return "\n".join([*lines, "Ctrl-C stops it.", ""])


build = partial(
    build_command,
    with_options(serve, ServeConfig.model_fields),
    "kvbench serve --tier cpu --kv-tokens 21504 --block-size 32 --host-gib 1",
)
