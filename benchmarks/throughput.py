"""Output tokens/s at concurrency 8, 512 + 128 tokens: the engine, eager and with --compile, against a real vLLM server.

Equal threads, equal dtype (bfloat16, unless --dtype says otherwise), the same prompts in turn. Targets on SmolLM2: at least 0.7 of vLLM
eager, at least 0.95 with --compile. The server is started once, and frozen while the engine has its turn.
It is bound to its cores by itself; do not bind the benchmark's process (GOMP_CPU_AFFINITY), as the server would inherit that. Needs httpx.
Both run with torch's own wait policy: on a machine of one's own, the engine's milder one (GOMP_SPINCOUNT) is given up for it.
Run: OMP_NUM_THREADS=2 GOMP_SPINCOUNT=300000 python benchmarks/throughput.py --model FOLDER --vllm-python VENV/bin/python [--no-compile]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from common import PAIRS, engine, interleaved, load, prompt, report
from kvbench.runners.engine.model.model import Model
from lines import add_output
from vllm_server import complete_all, frozen, vllm_server

REQUESTS, PROMPT, OUTPUT = 8, 512, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--vllm-python", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    add_output(parser)
    options = parser.parse_args()
    models = {"eager": load(options.model, options.dtype)}
    if options.compile:
        models["compile"] = load(options.model, options.dtype, compiled=True)
    some = models["eager"]

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        with vllm_server(options.vllm_python, Path(options.model), options.dtype, torch.get_num_threads(), log) as (url, group):
            functions: dict[str, Callable[[int], float | None]] = {"vllm": lambda number: complete_all(url, prompts(number, some), OUTPUT)}
            functions |= {name: rounds_of(model, group) for name, model in models.items()}
            seconds = interleaved(functions, options.pairs)
    share = {
        name: round(statistics.median(base / own for base, own in zip(seconds["vllm"], values, strict=True)), 3)
        for name, values in seconds.items()
        if name != "vllm"
    }
    rate = {name: round(REQUESTS * OUTPUT / statistics.median(values), 1) for name, values in seconds.items()}
    report(
        "throughput",
        options,
        {"share_of_vllm": share, "median_tokens_per_s": rate},
        requests=REQUESTS,
        prompt_tokens=PROMPT,
        output_tokens=OUTPUT,
        baseline="vLLM server over HTTP, eager, prefix caching on, as many bound threads",
        cache_state="cold: new prompts each round",
    )


def prompts(number: int, model: Model) -> list[list[int]]:
    """The prompts of one round, new to every cache."""
    return [prompt(number * REQUESTS + index, PROMPT, model) for index in range(REQUESTS)]


def rounds_of(model: Model, server_group: int) -> Callable[[int], float]:
    """Rounds of the engine, the server frozen meanwhile: all requests at once, until the last has ended."""
    made = engine(model, REQUESTS * 42)

    def run(number: int) -> float:
        batch = prompts(number, model)
        with frozen(server_group):
            begin = time.perf_counter()
            for index, tokens in enumerate(batch):
                made.submit(str(index), tokens, OUTPUT)
            while made.is_busy:
                made.step()
            return time.perf_counter() - begin

    return run


if __name__ == "__main__":
    main()
