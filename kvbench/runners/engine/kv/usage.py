"""How the pool's slots are used at one moment: raw counts, from which waste is computed later (``analysis/fragmentation.py``)."""

from __future__ import annotations

from kvbench.runners.engine.scheduling.scheduler import Scheduler


def usage(scheduler: Scheduler) -> dict[str, int | None]:
    """Slots and requests of one step, once its tokens are computed and before the requests that it finished have gone.

    Slots: ``reserved`` by the running requests, ``used`` (they hold a token's KV), ``unneeded`` (reserved, and never used: beyond what its
    request will come to), ``free``, and ``room``, the most of these that one request could be given. Requests: ``running``, ``waiting``;
    ``needed`` are the slots that the first waiting one must be given, ``None`` where none waits. Blocks that several requests share are
    not told apart.
    """
    pool, size, running = scheduler.pool, scheduler.cache.block_size, scheduler.running
    reserved = [len(sequence.block_table) * size for sequence in running]
    return {
        "reserved": sum(reserved),
        "used": sum(sequence.computed for sequence in running),
        "unneeded": sum(max(slots - sequence.longest, 0) for slots, sequence in zip(reserved, running, strict=True)),
        "free": pool.free_blocks * size,
        "room": pool.room * size,
        "running": len(running),
        "waiting": len(scheduler.waiting),
        "needed": scheduler.needed_by_next() * size if scheduler.waiting else None,
    }
