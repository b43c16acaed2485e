"""The arms of a run, in the order in which they are compared; the first is the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvbench.config.run import RunConfig
from kvbench.errors import UsageError
from kvbench.experiments.tiers.options import TierOptions
from kvbench.experiments.workload import Workload
from kvbench.runners.base import ArmSetup, Backend


def make_arms(config: RunConfig, backend: Backend, workload: Workload) -> Sequence[ArmSetup]:
    """What the experiment compares: its own arms, or one for each tier.

    Raises:
        UsageError: a tier cannot be sized.
    """
    if workload.arms is not None:
        return [arm if arm.swap_tokens is None else _with_swap_space(arm, config, backend) for arm in workload.arms]
    assert isinstance(config, TierOptions)
    return [ArmSetup(tier, tier, _host_tokens(config, tier, backend, workload)) for tier in config.tier]


def _with_swap_space(arm: ArmSetup, config: RunConfig, backend: Backend) -> ArmSetup:
    """The arm with a swap space of the size that was asked for, if one was."""
    if config.swap_size == "auto" or backend.bytes_per_token is None:
        return arm
    return replace(arm, swap_tokens=int(config.swap_size * 2**30) // backend.bytes_per_token)


def _host_tokens(config: TierOptions, tier: str, backend: Backend, workload: Workload) -> int | None:
    """Size of a host tier in tokens, of which whole chunks can be used; ``None`` for an arm without one, and where it is unknown."""
    if tier == "none" or config.attached:
        return None
    if config.host_tokens is not None:
        return config.host_tokens
    if config.host_gib == "auto":
        return backend.host_room(workload.working_set_chunks(backend.chunk_tokens) * backend.chunk_tokens)
    if backend.bytes_per_token is None:
        raise UsageError("--host-gib: the KV size of this model is not known; give --host-tokens")
    return int(config.host_gib * 2**30) // backend.bytes_per_token
