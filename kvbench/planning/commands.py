"""What to add to a server's command line for a recommended host tier; text only, nothing is started."""

from __future__ import annotations

import shlex
from pathlib import Path

from kvbench.planning.config import PlanConfig
from kvbench.planning.result import Command

TIER = "cpu"


def commands_for(config: PlanConfig, model: str | None, kv_tokens: int, host_gib: float) -> tuple[Command, ...]:
    """The commands that set the tier up; none for a profile that no engine has.

    Args:
        model: folder, shape or served name; ``None``: not known.
        kv_tokens: the device pool.
        host_gib: size of the tier.
    """
    if config.profile == "vllm":
        return _vllm(config, model, host_gib)
    if config.profile == "engine":
        line = ["kvbench", "run", f"--model={model or config.model}", f"--kv-tokens={kv_tokens}", f"--host-gib={host_gib:g}"]
        return (Command("Measure it", shlex.join(line)),)
    return ()


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
