"""``kvbench serve``: start the servers that a run would start, for use by hand."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from kvbench.cli import output
from kvbench.cli.commands import build_command
from kvbench.cli.termination import terminable

if TYPE_CHECKING:
    from kvbench.runners.vllm.arm_servers import ArmServers

EXAMPLE = "kvbench serve --tier cpu --kv-tokens 21504 --block-size 32 --host-gib 1"

WATCH_S = 0.5
"""Between two looks whether the servers still run."""


def build() -> TyperCommand:
    """The command."""
    return build_command(serve, "serve", EXAMPLE)


def serve(
    model: Annotated[
        str,
        typer.Option("--model", metavar="NAME", show_default=False, rich_help_panel="Server",
                     help="A Hugging Face folder, a hub's model that the cache holds, or a shape with random weights such as tiny. "
                     "[default: tiny]"),
    ] = "tiny",
    tier: Annotated[
        str,
        typer.Option("--tier", metavar="NAME", show_default=False, rich_help_panel="Server",
                     help="none, cpu, lmcache-inproc, disk, redis or native. [default: none]"),
    ] = "none",
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=1, max=65535, show_default=False, rich_help_panel="Server",
                     help="Where vLLM listens, on loopback. [default: 8000]"),
    ] = 8000,
    kv_tokens: Annotated[
        int | None,
        typer.Option("--kv-tokens", metavar="N", min=1, show_default=False, rich_help_panel="Server",
                     help="Device pool, in tokens. [default: as the server decides; 1 GiB on the CPU]"),
    ] = None,
    block_size: Annotated[
        int | None,
        typer.Option("--block-size", metavar="N", min=1, show_default=False, rich_help_panel="Server",
                     help="Tokens a block; a multiple of 32 on the CPU. [default: as the server decides]"),
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option("--max-model-len", metavar="N", min=1, show_default=False, rich_help_panel="Server",
                     help="Longest prompt and output together, in tokens. [default: what the pool holds]"),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option("--dtype", metavar="NAME", show_default=False, rich_help_panel="Server",
                     help="Weights and KV, as vLLM takes it. [default: auto]"),
    ] = "auto",
    host_gib: Annotated[
        float,
        typer.Option("--host-gib", metavar="F", min=0.0625, show_default=False, rich_help_panel="Tier",
                     help="Host memory of the tier, in GiB; LMCache evicts from 0.8 of it on. [default: 4]"),
    ] = 4.0,
    chunk_tokens: Annotated[
        int,
        typer.Option("--chunk-tokens", metavar="N", min=1, show_default=False, rich_help_panel="Tier",
                     help="What LMCache stores and evicts at once, in tokens. [default: 256]"),
    ] = 256,
    disk: Annotated[
        Path | None,
        typer.Option("--disk", metavar="FOLDER", show_default=False, rich_help_panel="Tier",
                     help="Where tier disk makes a folder of its own, removed at the end. [default: none]"),
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option("--redis", metavar="ADDRESS", show_default=False, rich_help_panel="Tier",
                     help="redis://[USER:PASSWORD@]HOST[:PORT] of tier redis; its content is kept. [default: none]"),
    ] = None,
    vllm_python: Annotated[
        Path | None,
        typer.Option("--vllm-python", metavar="FILE", show_default=False, rich_help_panel="Environment",
                     help="Interpreter that has vLLM. [default: .venv-vllm/bin/python, else kvbench's own]"),
    ] = None,
    vllm_arg: Annotated[
        list[str] | None,
        typer.Option("--vllm-arg", metavar="ARG", show_default=False, rich_help_panel="Environment",
                     help="One more argument for vLLM, as in --vllm-arg=--max-num-seqs=8. Repeatable. [default: none]"),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", show_default=False, rich_help_panel="Environment",
                     help="One more environment variable for the servers. Repeatable. [default: none]"),
    ] = None,
    startup_timeout: Annotated[
        float,
        typer.Option("--startup-timeout", metavar="F", min=1, show_default=False, rich_help_panel="Environment",
                     help="How long a server may take to answer, in seconds. [default: 300]"),
    ] = 300.0,
    logs: Annotated[
        Path | None,
        typer.Option("--logs", metavar="FOLDER", show_default=False, rich_help_panel="Environment",
                     help="Where the servers' logs go. [default: a new temporary folder]"),
    ] = None,
) -> None:  # fmt: skip
    """Start the servers that a run would start, for use by hand.

    Prints their addresses, and the exact command lines and environment to copy into a deployment. Ctrl-C stops them (SIGTERM too), and
    nothing survives this command.

    Exit codes: 0 stopped by Ctrl-C or SIGTERM, 1 a server did not start or ended, 2 wrong use.
    """
    from kvbench.errors import UsageError
    from kvbench.runners.vllm.arm_servers import ArmServers
    from kvbench.runners.vllm.installation import find_python, inspect
    from kvbench.runners.vllm.options import ServerOptions, parse_environment
    from kvbench.runners.vllm.tiers import TIERS
    from kvbench.runners.vllm.tiny_model import resolve_model

    if tier not in TIERS:
        raise UsageError(f"--tier {tier}: there is no such tier; there are {', '.join(TIERS)}")
    environment = parse_environment(tuple(env or ()))
    installation = inspect(find_python(vllm_python))
    installation.require(lmcache=TIERS[tier].lmcache)
    options = ServerOptions(
        model=resolve_model(model, installation.python),
        dtype=dtype,
        kv_tokens=kv_tokens,
        block_size=block_size,
        max_model_len=max_model_len,
        chunk_tokens=chunk_tokens,
        host_gib=host_gib,
        disk=disk,
        redis=redis,
        arguments=tuple(vllm_arg or ()),
        environment=environment,
        startup_s=startup_timeout,
    )
    folder = _log_folder(logs)
    try:
        with terminable(), ArmServers(tier, options, installation, folder, port=port) as servers:
            output.write(_describe(servers, folder))
            while True:
                servers.check_alive()
                time.sleep(WATCH_S)
    except KeyboardInterrupt:
        output.write("\nStopped.\n")
    finally:
        if logs is None:
            with suppress(OSError):  # it holds logs, to which the user was pointed
                folder.rmdir()


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
    from kvbench.runners.vllm.launch_display import shell_line
    from kvbench.runners.vllm.tiers import TIERS

    with open_client() as client:
        model, capacity = KIND.served_model(client, servers.url), KIND.scrape(client, servers.url).capacity
    lines = [f"vLLM {model.version or '–'}, arm {servers.tier} ({TIERS[servers.tier].describes})"]
    lines.append(f"Address:   {servers.url}/v1, model {model.name}")
    if servers.lmcache_url is not None:
        lines.append(f"LMCache:   {servers.lmcache_url}/status")
    if capacity is not None:
        lines.append(f"Pool:      {capacity.tokens:,} tokens, {capacity.blocks:,} blocks of {capacity.block_size}")
    if model.max_tokens is not None:
        lines.append(f"Longest:   {model.max_tokens:,} tokens, prompt and output together")
    lines += [f"Logs:      {folder}", "", "To start the same without kvbench, in this order, each in a shell of its own:", ""]
    launches = [servers.lmcache_launch, servers.vllm_launch]
    lines += [word for launch in launches if launch is not None for word in (shell_line(launch), "")]
    return "\n".join([*lines, "Ctrl-C stops it.", ""])
