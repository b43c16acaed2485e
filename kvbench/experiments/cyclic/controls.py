"""Controls: the same arms where no tier can help. Each is a run of its own, in a folder below the run it speaks for.

``no-reuse``   every pass reads new documents, so nothing can be found again
``fits``       all that is ever written fits the device pool, so nothing is left for a tier to give

Both read as many documents as the pool holds, at most as many as the run: that is enough for a median, and to overflow the pool where all
are new. Two passes suffice, a first and one that would profit. Lengths, arms, sizes of pool and tier, and all else are the run's own, but
for the head that documents may share, which would be read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvbench.experiments.cyclic.options import CyclicOptions
from kvbench.models.units import ceil_div
from kvbench.runs.run_folder import CONTROLS, LEAST_CONTROL_REPEATS

PASSES = ("sequential", "repeat")
REUSE = dict(zip(CONTROLS, (0.0, 1.0), strict=True))


def control_configs(config: CyclicOptions, manifest: Mapping[str, Any]) -> dict[str, CyclicOptions]:
    """The configuration of each control, by its name.

    Args:
        manifest: of the run that was measured, which knows the sizes.
    """
    capacity = manifest["capacity"]
    held = _held(config, capacity["device_tokens"], capacity["block_size"])
    common = {
        "controls": False,
        "docs": min(manifest["workload"]["documents"], held),
        "passes": PASSES,
        "overlap": 0.0,
        "repeats": max(config.planned_repeats, LEAST_CONTROL_REPEATS),
    }
    if sizes := [size for size in capacity["host_tokens"].values() if size is not None]:
        common["host_tokens"] = sizes[0]  # that of every arm that has one; "auto" would be another
    return {name: config.model_copy(update=common | {"reuse": reuse}) for name, reuse in REUSE.items()}


def _held(config: CyclicOptions, pool: int, block: int) -> int:
    """Documents of which the pool keeps all that is ever written, in every pass, whatever its rule of eviction; at least 1.

    One block of the pool is left out, as vLLM never uses it, and each document has one to spare, for a tail that does not fill its block.
    """
    written = config.doc_tokens + len(PASSES) * (config.question_tokens + config.answer_tokens)
    return max(1, (pool // block - 1) // (ceil_div(written, block) + 1))
