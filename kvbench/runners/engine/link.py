"""What the link between host and GPU gives: copy rates, measured.

Run as a script by an interpreter that has torch, which need not be kvbench's own. Nothing of kvbench is imported.

    python link.py

Prints one JSON object: ``gpu``, its name, or null where there is none; and GiB/s by direction and by kind of host memory.
"""

from __future__ import annotations

import json
import statistics
import time

import torch

BYTES, ROUNDS = 256 << 20, 7


def copy_rate(source: torch.Tensor, target: torch.Tensor) -> float:
    """GiB/s of copying one to the other: the median of some rounds, after one that is thrown away."""
    seconds = []
    for _ in range(ROUNDS + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return float(source.numel() / statistics.median(seconds[1:]) / 2**30)


def measure() -> dict[str, object]:
    """Every rate; all unknown without a GPU."""
    if not torch.cuda.is_available():
        return {"gpu": None}
    device = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
    rates: dict[str, object] = {"gpu": torch.cuda.get_device_name()}
    for kind, pinned in (("pinned", True), ("pageable", False)):
        host = torch.ones(BYTES, dtype=torch.uint8, pin_memory=pinned)
        rates[f"{kind}_to_gpu_gib_s"] = round(copy_rate(host, device), 2)
        rates[f"{kind}_from_gpu_gib_s"] = round(copy_rate(device, host), 2)
    return rates


if __name__ == "__main__":
    print(json.dumps(measure()))
