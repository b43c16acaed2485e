"""Prefill of 5,003 tokens: the engine, whole and in chunks of 2,048, against transformers with sdpa and its DynamicCache.

Target: at most 1.10 times the baseline. Both compute every token (each round reads a new prompt) and the logits of the last one only.
Run: python benchmarks/prefill.py [--model FOLDER]
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from common import engine, interleaved, load, median_ms, parse, prompt, ratios, reference, report
from kvbench.runners.engine.engine import Engine

TOKENS = 5003
BLOCKS = 320


def main() -> None:
    options = parse(__doc__ or "")
    model = load(options.model, options.dtype)
    plain = reference(model)
    whole, chunked = engine(model, BLOCKS, max_batch_tokens=8192), engine(model, BLOCKS, max_batch_tokens=2048)

    @torch.inference_mode()
    def baseline(number: int) -> None:
        plain(input_ids=torch.tensor([prompt(number, TOKENS, model)]), use_cache=True, logits_to_keep=1).logits.argmax().item()

    def ours(which: Engine) -> Callable[[int], None]:
        def run(number: int) -> None:
            which.submit("prefill", prompt(number, TOKENS, model), 1)
            while which.is_busy:
                which.step()

        return run

    seconds = interleaved({"transformers": baseline, "whole": ours(whole), "chunked": ours(chunked)}, options.pairs)
    results = {name: ratios(seconds, name, "transformers") for name in ("whole", "chunked")}
    report(
        "prefill",
        options,
        {"ratio_to_transformers": results, "median_ms": median_ms(seconds)},
        tokens=TOKENS,
        baseline="transformers, sdpa, DynamicCache, last logits only",
        cache_state="cold: a new prompt each round",
    )


if __name__ == "__main__":
    main()
