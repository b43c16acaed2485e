"""What scheduling, block accounting, sampling's bookkeeping and events cost beside the model, at batch 32: CPU time by part of a step.

Every step's parts are timed by the CPU time of the process, so others on the same cores do not lengthen them. Two cases: a pool that
holds all, and one that holds half, where requests are swapped out and back. Target: below 5 % of a step.
Run: OMP_NUM_THREADS=1 python benchmarks/scheduler_cost.py [--model FOLDER]
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from typing import Any

from common import load, parse, prompt, report
from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.engine_config import EngineConfig
from kvbench.runners.engine.model.model import Model

BATCH, PROMPT, STEPS, BLOCK, BUDGET = 32, 256, 64, 16, 4096
BLOCKS_EACH = (PROMPT + 2 * STEPS) // BLOCK + 1
PARTS = ("schedule", "deliver", "write_through", "evictions")


def main() -> None:
    options = parse(__doc__ or "")
    model = load(options.model, options.dtype)
    report(
        "scheduler_cost",
        options,
        {name: measured(model, blocks) for name, blocks in (("ample", BATCH * BLOCKS_EACH), ("pressure", BATCH * BLOCKS_EACH // 2))},
        requests=BATCH,
        prompt_tokens=PROMPT,
        steps=STEPS,
        baseline="the CPU time of the whole step",
        cache_state="warm pool; prefix cache on, no host tier",
    )


def measured(model: Model, blocks: int) -> dict[str, Any]:
    """Shares of the CPU time of decode steps, all requests submitted at once and past their prefill where they fit."""
    tokens = BATCH * (PROMPT + 2 * STEPS)
    engine = Engine(model, EngineConfig(blocks, BLOCK, BUDGET, None, 256, swap_tokens=tokens))
    for number in range(BATCH):
        engine.submit(str(number), prompt(number, PROMPT, model), 2 * STEPS)
    for _ in range(BATCH * PROMPT // BUDGET + 1):
        engine.step()
    spent: dict[str, float] = defaultdict(float)
    for name, owner, attribute in (
        ("schedule", engine.scheduler, "schedule"),
        ("deliver", engine, "_deliver"),
        ("write_through", engine, "_write_through"),
        ("evictions", engine, "_count_evictions"),
    ):
        setattr(owner, attribute, timed(getattr(owner, attribute), spent, name))
    for name in ("store", "load"):
        setattr(engine.transfer, name, timed(getattr(engine.transfer, name), spent, "copies"))
    before, events = engine.snapshot(), len(engine.journal.events)
    gc.collect()
    begin = time.process_time()
    for _ in range(STEPS):
        engine.step()
    total = time.process_time() - begin
    parts = {name: spent[name] for name in PARTS}
    parts["schedule"] -= spent["copies"]  # a swap's copy is made while it is planned
    return {
        "share_of_step": {name: round(value / total, 4) for name, value in parts.items()} | {"all": round(sum(parts.values()) / total, 4)},
        "copies_share_of_step": round(spent["copies"] / total, 4),
        "cpu_ms_a_step": round(total / STEPS * 1e3, 2),
        "computed_tokens_a_step": (engine.counters.computed_tokens - before["computed_tokens"]) / STEPS,
        "preemptions": engine.counters.preemptions - before["preemptions"],
        "events": len(engine.journal.events) - events,
    }


def timed(function: Any, spent: dict[str, float], name: str) -> Any:
    """The function, its CPU time added up."""

    def run(*arguments: Any) -> Any:
        begin = time.process_time()
        try:
            return function(*arguments)
        finally:
            spent[name] += time.process_time() - begin

    return run


if __name__ == "__main__":
    main()
