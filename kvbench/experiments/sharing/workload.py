"""Experiment ``sharing`` (after the article on paging): several answers to one prompt, by parallel sampling and by beam search.

Arms: with ``copy-on-write`` the answers hold the prompt's KV together, and a block is copied when one of them writes to it while others
hold it; with ``copying`` each answer has a copy of its own from the start. The prefix cache is off: it would share blocks by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kvbench.errors import UsageError
from kvbench.experiments.at_once.workload import AtOnce, distinct_prompts, drawn_lengths
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.sharing.options import SharingOptions
from kvbench.experiments.workload import request_key
from kvbench.runners.base import ArmSetup, Request
from kvbench.workloads.draws import Draws
from kvbench.workloads.passes import Pass

SAMPLING, BEAM = "sampling", "beam"


@dataclass(frozen=True, kw_only=True)
class Sharing(AtOnce):
    """The workload of one run. The passes have prompts of their own: those of the first pass stand before those of the second."""

    each: ClassVar[str] = "prompt"

    samples: int
    beams: int

    @property
    def passes(self) -> list[Pass]:
        """Parallel sampling, then beam search."""
        requests = len(self.lengths) // 2
        return [Pass(SAMPLING, 0, list(range(requests))), Pass(BEAM, 1, list(range(requests, 2 * requests)))]

    def requests(self, arm: str, repeat: int, pass_: Pass) -> list[Request]:
        """One for each prompt of the pass; each has several answers."""
        sampled = pass_.name == SAMPLING
        return [
            Request(
                request_key(pass_, arm, repeat, position),
                self.prompts[prompt],
                self.lengths[prompt][1],
                temperature=self.temperature if sampled else 0.0,
                seed=Draws(self.seed, "sharing-samples", prompt).integers(1, 0, 2**63)[0],
                samples=self.samples if sampled else 1,
                beams=0 if sampled else self.beams,
            )
            for position, prompt in enumerate(pass_.doc_ids)
        ]

    def working_set_tokens(self) -> int:
        """What copies of all answers of a pass hold at their end; the last output token has no KV."""
        held = [sum(prompt + output - 1 for prompt, output in (self.lengths[number] for number in pass_.doc_ids)) for pass_ in self.passes]
        return max(self.samples * held[0], self.beams * held[1])

    def describe(self) -> dict[str, Any]:
        """Passes, requests of each, answers (records) of each, and the lengths of each pass's prompts and outputs."""
        requests = len(self.lengths) // 2
        halves = [self.lengths[:requests], self.lengths[requests:]]
        return {
            "passes": [SAMPLING, BEAM],
            "requests_per_pass": requests,
            "answers": [requests * self.samples, requests * self.beams],
            "prompt_tokens": [[prompt for prompt, _ in half] for half in halves],
            "output_tokens": [[output for _, output in half] for half in halves],
        }


def make_workload(config: SharingOptions, facts: RunnerFacts) -> Sharing:
    """The prompts of both passes.

    Raises:
        UsageError: there are more beams than tokens to begin them with.
    """
    vocab = facts.vocab
    if config.beams > vocab:
        raise UsageError(f"--beams {config.beams}: each beam begins with another token, and the vocabulary has {vocab:,}; lower it")
    lengths = drawn_lengths(config, "sharing-prompt-lengths", "sharing-output-lengths", passes=2)
    shares = ArmSetup("copy-on-write", prefix_cache=False, sample_usage=True)
    return Sharing(
        name="sharing",
        seed=config.seed,
        lengths=lengths,
        prompts=distinct_prompts(config.seed, "sharing-", lengths, vocab),
        arms=[shares, replace(shares, name="copying", copy_on_write=False)],
        temperature=config.sampling_temperature,
        samples=config.n,
        beams=config.beams,
    )
