"""What one engine is: its sizes, and what it does when they run out."""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.runners.engine.scheduling.allocation import Allocation, on_demand
from kvbench.runners.engine.scheduling.preemption import VictimPolicy, newest


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes of one engine, in tokens but for the blocks, and what it does when they run out.

    ``host_tokens`` ``None``: no host tier; 0: one that holds nothing. ``prefix_cache``: blocks of the device pool are found again.
    ``copy_on_write``: forks share blocks, else they copy them. All others are as :class:`~kvbench.runners.base.ArmSetup` has them.
    """

    num_blocks: int
    block_size: int
    max_batch_tokens: int
    host_tokens: int | None
    chunk_tokens: int
    swap_tokens: int | None = None
    prefix_cache: bool = True
    victim: VictimPolicy = newest
    allocation: Allocation = on_demand
    copy_on_write: bool = True
    reserve_tokens: int | None = None
    contiguous: bool = False
    sample_usage: bool = False
    device_policy: str = "lru"
    host_policy: str = "lru"
