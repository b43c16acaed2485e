"""The manifest of a run: what is known before the model is loaded, and what the model, the workload and the machine add."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kvbench.config.run import RunConfig
from kvbench.config.secrets import mask_command
from kvbench.experiments.registry import experiments
from kvbench.experiments.workload import Workload
from kvbench.runners.base import ArmSetup, Backend
from kvbench.runs.machine import describe_machine
from kvbench.runs.version import __version__


def first_manifest(config: RunConfig, command: list[str]) -> dict[str, Any]:
    """What is known before the model is loaded."""
    return {
        "kvbench": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": mask_command(command),
        "config": config.resolved(),
    }


def full_manifest(config: RunConfig, backend: Backend, workload: Workload, arms: Sequence[ArmSetup]) -> dict[str, Any]:
    """What the model, the workload and the machine add."""
    described, pool = backend.describe(), backend.capacity
    working_set = workload.working_set_tokens()
    return {
        "seeds": {"workload": config.seed, "weights": described["weights_seed"]},
        "nonce": backend.nonce,
        "arms": [{"name": arm.name, "command": None} | arm.differences() for arm in arms],
        "profile": backend.profile(arms[0].name) if experiments()[config.experiment].predicted else None,
        "rates": described.get("rates"),
        "floors": described.get("floors"),
        "model": described["model"],
        "capacity": {
            "device_tokens": pool.tokens,
            "block_size": pool.block_size,
            "host_tokens": {arm.name: arm.host_tokens for arm in arms},
            "chunk_tokens": backend.chunk_tokens if config.has_tier else None,
        },
        "workload": workload.describe() | {"working_set_tokens": working_set},
        "working_set_ratio": round(working_set / pool.tokens, 4),
        "environment": {**describe_machine(), **described["device"]},
    }
