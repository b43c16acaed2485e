"""Where a decode step of a batch spends its time: 8 sequences after 512 tokens, by operator. Says what the throughput is lost to.

Run: OMP_NUM_THREADS=1 python benchmarks/step_profile.py --model FOLDER [--compile]
"""

from __future__ import annotations

import argparse

import torch

from common import engine, load, prompt
from lines import add_output, write_line

REQUESTS, PROMPT, STEPS, SHOWN = 8, 512, 10, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--compile", action="store_true")
    add_output(parser)
    options = parser.parse_args()
    model = load(options.model, options.dtype, options.compile)
    made = engine(model, REQUESTS * 42)
    for number in range(REQUESTS):
        made.submit(str(number), prompt(number, PROMPT, model), 4 * STEPS)
    while made.scheduler.waiting or min(sequence.output_tokens for sequence in made.scheduler.running) < STEPS:
        made.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(STEPS):
            made.step()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    ms = round(total / 1e3 / STEPS, 1)
    share = {event.key: round(event.self_cpu_time_total / total, 3) for event in events[:SHOWN]}
    facts = {
        "dtype": options.dtype,
        "compile": options.compile,
        "threads": torch.get_num_threads(),
        "baseline": "none",
        "cache_state": "512 tokens of context each",
    }
    results = {"operator_ms_a_step": ms, "share_of_operator_time": share}
    write_line({"benchmark": "step_profile", **facts, "results": results}, options.output)


if __name__ == "__main__":
    main()
