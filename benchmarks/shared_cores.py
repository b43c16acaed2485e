"""What waiting threads cost when a core is shared: the same prefill and the same hit, alone and beside a busy loop, by wait policy.

Baseline: torch's default (GOMP_SPINCOUNT 300,000). Every setting in a process of its own, as the threads read it once.
Run: python benchmarks/shared_cores.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kvbench.runs.machine import describe_machine

SETTINGS = {
    "spin 300000": {"GOMP_SPINCOUNT": "300000"},
    "spin 10000": {"GOMP_SPINCOUNT": "10000"},
    "asleep": {"OMP_WAIT_POLICY": "PASSIVE"},
}
BUSY = "while True: pass"
MEASURE = """
import json, statistics, time
from common import engine, load, prompt
model = load("tiny")
made = engine(model, 700)
def seconds(tokens, count):
    begin = time.perf_counter()
    made.submit("request", tokens, count)
    while made.is_busy:
        made.step()
    return time.perf_counter() - begin
prompts = [prompt(number, 5003, model) for number in range(6)]
seconds(prompts[0], 8)
prefill = statistics.median(seconds(tokens, 1) for tokens in prompts[1:])
hit = statistics.median(seconds(prompts[-1], 8) for _ in range(5))
print(json.dumps({"prefill_s": round(prefill, 2), "hit_and_8_tokens_s": round(hit, 3)}))
"""


def main() -> None:
    results: dict[str, Any] = {"alone": {name: measured(setting) for name, setting in SETTINGS.items()}}
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        results["beside a busy loop"] = {name: measured(setting) for name, setting in SETTINGS.items()}
    finally:
        busy.kill()
        busy.wait()
    facts = {"baseline": "torch's default, spin 300000", "cache_state": "prefill cold; hit: the whole prompt on the device"}
    print(json.dumps({"benchmark": "shared_cores", **facts, "results": results, "machine": describe_machine()}))


def measured(setting: dict[str, str]) -> Any:
    """The figures under one setting, from a fresh process."""
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], env={**os.environ, **setting, "PYTHONPATH": here}, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
