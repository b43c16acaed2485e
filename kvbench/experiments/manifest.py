"""The manifest of a run: what is known before the model is loaded, and what the model, the workload and the machine add."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import kvbench
from kvbench.config import RunConfig
from kvbench.environment import describe_machine
from kvbench.errors import UsageError
from kvbench.experiments.workload import Workload
from kvbench.masking import mask_command
from kvbench.runners.base import Backend


def first_manifest(config: RunConfig, command: list[str]) -> dict[str, Any]:
    """What is known before the model is loaded."""
    return {
        "kvbench": kvbench.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": mask_command(command),
        "config": config.resolved(),
    }


def full_manifest(config: RunConfig, backend: Backend, workload: Workload) -> dict[str, Any]:
    """What the model, the workload and the machine add."""
    described, pool = backend.describe(), backend.capacity
    working_set = workload.working_set_tokens()
    return {
        "seeds": {"workload": config.seed, "weights": described["weights_seed"]},
        "nonce": backend.nonce,
        "arms": [{"name": arm, "command": None} for arm in config.tier],
        "profile": backend.profile(config.tier[0]),
        "rates": described.get("rates"),
        "model": described["model"],
        "capacity": {
            "device_tokens": pool.tokens,
            "block_size": pool.block_size,
            "host_tokens": {arm: _host_tokens(config, arm, backend, workload) for arm in config.tier},
            "chunk_tokens": backend.chunk_tokens if config.has_tier else None,
        },
        "workload": workload.describe() | {"working_set_tokens": working_set},
        "working_set_ratio": round(working_set / pool.tokens, 4),
        "environment": {**describe_machine(), **described["device"]},
    }


def _host_tokens(config: RunConfig, arm: str, backend: Backend, workload: Workload) -> int | None:
    """Size of an arm's host tier in tokens, of which whole chunks can be used; ``None`` for an arm without one, and where it is unknown."""
    if arm == "none" or config.url:
        return None
    if config.host_tokens is not None:
        return config.host_tokens
    if config.host_gib == "auto":
        return backend.host_room(workload.working_set_chunks(backend.chunk_tokens) * backend.chunk_tokens)
    if backend.bytes_per_token is None:
        raise UsageError("--host-gib: the KV size of this model is not known; give --host-tokens")
    return int(config.host_gib * 2**30) // backend.bytes_per_token
