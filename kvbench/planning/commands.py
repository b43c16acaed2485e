"""What to add to a server's command line for a recommended host tier; text only, nothing is started."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from kvbench.config.settings import flag
from kvbench.experiments.composed import compose
from kvbench.planning.config import PlanConfig
from kvbench.planning.result import Command

TIER = "cpu"


def commands_for(config: PlanConfig, model: str | None, kv_tokens: int, host_tokens: int, host_gib: float) -> tuple[Command, ...]:
    """The commands that set the tier up, or measure it; none for a profile that no engine has.

    ``model``: folder, shape or served name; ``None``: not known. ``kv_tokens``: the device pool. ``host_tokens, host_gib``: size of the
    tier.
    """
    if config.profile == "vllm":
        return _vllm(config, model, host_gib)
    if config.profile == "engine":
        return (Command("Measure it", shlex.join(_measure(config, model, kv_tokens, host_tokens))),)
    return ()


def _measure(config: PlanConfig, model: str | None, kv_tokens: int, host_tokens: int) -> Iterator[str]:
    """The run of what is planned. Its tier is sized in tokens: what a token takes is the engine's affair, which keeps 32 bits on a CPU."""
    own = {"model": model or config.model, "kv_tokens": kv_tokens, "host_tokens": host_tokens}
    yield from ("kvbench", "run", *(_option(name, value) for name, value in own.items()))
    for name in compose("cyclic", "engine").model_fields:
        value = getattr(config, name) if name in config.model_fields_set else None
        if value is not None and name not in own and name != "host_gib":
            yield _option(name, value)


def _option(name: str, value: object) -> str:
    return f"{flag(name)}={','.join(value) if isinstance(value, tuple) else value}"


def _vllm(config: PlanConfig, model: str | None, host_gib: float) -> tuple[Command, ...]:
    """LMCache's server, and vLLM's connector to it: exactly as ``kvbench run --runner vllm`` starts them."""
    from kvbench.runners.vllm.installation import Installation
    from kvbench.runners.vllm.options import ServerOptions
    from kvbench.runners.vllm.tiers import TIERS, Ports, lmcache_launch

    ports = Ports(vllm=8000, lmcache=5555, lmcache_http=8080)
    options = ServerOptions(model=model or "MODEL", chunk_tokens=config.chunk_tokens, host_gib=host_gib)
    server = lmcache_launch(TIER, options, Installation(Path("python"), None, None, None, None, 0, None), ports)
    beside = () if server is None else (Command("Start beside vLLM", shlex.join(server.command)),)
    return (*beside, Command("Add to vLLM's command line", shlex.join(TIERS[TIER].vllm(options, ports).command)))
