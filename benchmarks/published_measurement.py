"""The six medians of the published measurement, predicted from three of its own numbers; needs neither a model nor a GPU.

That measurement was made with vLLM on one GPU, with and without LMCache: ten documents of 5,011 tokens, read three times, in a pool of
21,520. The simulator foresees where each prompt token comes from; the three numbers make times of that. Nothing is fitted to the medians.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from kvbench.config.common import DEFAULT_BLOCK_SIZE, DEFAULT_KV_TOKENS
from kvbench.experiments.cyclic.options import DEFAULT_DOCS, CyclicOptions
from kvbench.experiments.cyclic.workload import make_cyclic
from kvbench.models.shapes import SHAPES
from kvbench.runners.base import ClosedLoop, ListSource
from kvbench.runners.profiles import VLLM
from kvbench.runners.simulator.prediction import Predictor
from kvbench.runners.simulator.simulator import CacheSizes
from kvbench.runs.rates import Rates

DOCUMENT_MS, LOAD_MS, LOADED, DEVICE_HIT_MS = 560.0, 8.5, 4864, 30.0
"""The three numbers: to compute a document of 5,011 tokens; to load 4,864 tokens (8 to 9 ms); of a request that hits the device."""

MEASURED = {
    ("vLLM", "sequential"): (575.5, 581.2),
    ("vLLM", "repeat"): (576.2, 575.9),
    ("vLLM", "reverse"): (505.4, 343.6),
    ("LMCache", "sequential"): (597.8, 605.4),
    ("LMCache", "repeat"): (48.6, 49.6),
    ("LMCache", "reverse"): (47.2, 40.9),
}
"""Median and mean TTFT in ms, as the article states them."""

DOCUMENT_5_MS = 438.0
"""The one document that was there in part, in the reverse pass without LMCache."""


def main() -> None:
    """Print the table, and the JSON line."""
    config = CyclicOptions.model_validate({})
    rates = Rates(config.doc_tokens / DOCUMENT_MS * 1e3, LOADED / LOAD_MS * 1e3, DEVICE_HIT_MS)
    workload = make_cyclic(config, DEFAULT_DOCS, SHAPES["qwen2.5-1.5b"]["vocab_size"], Path("none"))
    results = []
    times: dict[tuple[str, str, int], float] = {}
    print("| arm | pass | p50 predicted | measured | error | mean predicted | measured | error |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for arm, host in (("vLLM", None), ("LMCache", 10**6)):  # a tier with room for all, as in the published measurement
        predictor = Predictor(VLLM, CacheSizes(DEFAULT_KV_TOKENS, DEFAULT_BLOCK_SIZE, host, config.chunk_tokens), rates)
        for plan in workload.passes:
            prediction = predictor.predict(ListSource(workload.requests(arm, 0, plan)), ClosedLoop(1))
            of_pass = [time or 0.0 for time in prediction.ttft_ms]
            times |= {(arm, plan.name, document): time for document, time in zip(plan.doc_ids, of_pass, strict=True)}
            p50, average = (Figure.of(*pair) for pair in zip((median(of_pass), mean(of_pass)), MEASURED[arm, plan.name], strict=True))
            print(f"| {arm} | {plan.name} | {p50} | {average} |")
            results.append({"arm": arm, "pass": plan.name, "p50": p50._asdict(), "mean": average._asdict()})
    document_5 = Figure.of(times["vLLM", "reverse", 5], DOCUMENT_5_MS)
    print(f"| vLLM | reverse, document 5 alone | {document_5} | | | |\n")
    numbers = {"document_ms": DOCUMENT_MS, "load_ms": LOAD_MS, "loaded_tokens": LOADED, "device_hit_ms": DEVICE_HIT_MS}
    line = {"benchmark": "published_measurement", "baseline": "the published medians and means", "profile": VLLM.name, "numbers": numbers}
    print(json.dumps(line | {"results": results, "document_5": document_5._asdict()}))


class Figure(NamedTuple):
    """A predicted time beside the measured one, in ms, and its relative error."""

    predicted: float
    measured: float
    error: float

    @classmethod
    def of(cls, predicted: float, measured: float) -> Figure:
        return cls(round(predicted, 1), measured, round(predicted / measured - 1, 4))

    def __str__(self) -> str:
        return f"{self.predicted} | {self.measured} | {self.error:+.1%}"


if __name__ == "__main__":
    main()
