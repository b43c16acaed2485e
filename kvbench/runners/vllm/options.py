"""What servers are started with, whatever the arm."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of all servers of a run. ``None`` leaves a choice to the server, unless it says otherwise.

    Attributes:
        model: a folder, or a hub's name.
        dtype: as vLLM takes it; ``auto`` is vLLM's own choice.
        kv_tokens: device pool; rounded down to whole blocks, block 0 included, which vLLM never uses for requests. ``None``: as much as
            vLLM takes by itself; on the CPU 1 GiB.
        block_size: tokens a block; needed with ``kv_tokens``. On the CPU a multiple of 32.
        max_model_len: prompt and output together; ``None``: as much as the model and the pool allow.
        chunk_tokens: what LMCache stores and evicts at once.
        host_gib: size of LMCache's first tier, or of vLLM's own offloading. Needed by every tier but ``none``; :func:`host_gib_for`.
        disk: folder of tier ``disk``; each server gets a new folder in it, which is removed when it stops.
        redis: address of tier ``redis``, ``redis://[USER:PASSWORD@]HOST[:PORT]``.
        cpu_threads: cores of a CPU server, as ``0-3,6`` or ``auto``: one a physical core, all of them.
        arguments: more arguments for vLLM; they stand last, so that they win.
        environment: more environment for vLLM and LMCache; it wins too.
        startup_s, grace_s: how long a server may take to answer; and to end after SIGTERM, before SIGKILL.
    """

    model: str
    dtype: str = "auto"
    kv_tokens: int | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    chunk_tokens: int = 256
    host_gib: float | None = None
    disk: Path | None = None
    redis: str | None = None
    cpu_threads: str = "auto"
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    startup_s: float = 300.0
    grace_s: float = 15.0

    @property
    def api_key(self) -> str | None:
        """The key that vLLM asks for, where it is told one: as the argument ``--api-key``, else as ``VLLM_API_KEY``."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--api-key", "--api_key", nargs="?")
        return parser.parse_known_args(self.arguments)[0].api_key or self.environment.get("VLLM_API_KEY") or None

    @property
    def blocks(self) -> int | None:
        """Blocks of the device pool, where its size is given; ``UsageError`` where that of a block is not, or is larger."""
        if self.kv_tokens is None:
            return None
        if self.block_size is None:
            raise UsageError("--kv-tokens needs --block-size: the server is told its number of blocks")
        if self.kv_tokens < 2 * self.block_size:
            raise UsageError(f"--kv-tokens {self.kv_tokens}: vLLM needs two blocks of --block-size {self.block_size}, and leaves one idle")
        return self.kv_tokens // self.block_size


def parse_environment(pairs: tuple[str, ...]) -> dict[str, str]:
    """``K=V`` words, as ``--env`` takes them, by name; ``UsageError`` for a word without a name or ``=``."""
    for pair in pairs:
        if not pair.partition("=")[0] or "=" not in pair:
            raise UsageError(f"--env {pair}: NAME=VALUE is expected")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
