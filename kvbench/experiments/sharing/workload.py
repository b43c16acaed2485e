"""Experiment ``sharing`` (after the article on paging): several answers to one prompt, by parallel sampling and by beam search.

Arms: with ``copy-on-write`` the answers hold the prompt's KV together, and a block is copied when one of them writes to it while others
hold it; with ``copying`` each answer has a copy of its own from the start. The prefix cache is off: it would share blocks by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvbench.errors import UsageError
from kvbench.experiments.at_once.prompts import distinct_prompt
from kvbench.experiments.sharing.options import SharingOptions
from kvbench.experiments.workload import Size, request_key
from kvbench.models.units import ceil_div
from kvbench.runners.base import ArmSetup, ClosedLoop, Pace, Request
from kvbench.workloads.draws import Draws
from kvbench.workloads.passes import Pass

SAMPLING, BEAM = "sampling", "beam"


@dataclass(frozen=True, slots=True)
class Sharing:
    """The workload of one run. The passes have prompts of their own: ``lengths`` are prompt and output tokens of each, those of the first
    pass before those of the second.
    """

    seed: int
    vocab: int
    lengths: tuple[tuple[int, int], ...]
    samples: int
    beams: int
    temperature: float

    @property
    def passes(self) -> list[Pass]:
        """Parallel sampling, then beam search."""
        requests = len(self.lengths) // 2
        return [Pass(SAMPLING, 0, list(range(requests))), Pass(BEAM, 1, list(range(requests, 2 * requests)))]

    @property
    def arms(self) -> Sequence[ArmSetup]:
        """What the engine does with blocks that several answers hold."""
        return [
            ArmSetup(name, copy_on_write=shares, prefix_cache=False, sample_usage=True)
            for name, shares in (("copy-on-write", True), ("copying", False))
        ]

    def requests(self, arm: str, repeat: int, pass_: Pass) -> list[Request]:
        """One for each prompt of the pass; each has several answers."""
        return [
            Request(
                request_key(pass_, arm, repeat, position),
                self._prompt(prompt),
                self.lengths[prompt][1],
                temperature=self.temperature if pass_.name == SAMPLING else 0.0,
                seed=Draws(self.seed, "sharing-samples", prompt).integers(1, 0, 2**63)[0],
                samples=self.samples if pass_.name == SAMPLING else 1,
                beams=self.beams if pass_.name == BEAM else 0,
            )
            for position, prompt in enumerate(pass_.doc_ids)
        ]

    def pace(self, pass_: Pass) -> Pace | None:
        """All at the start."""
        return ClosedLoop(len(pass_.doc_ids))

    def sizes(self) -> list[Size]:
        """Of one answer to each prompt."""
        return [Size(f"prompt {number}", *lengths) for number, lengths in enumerate(self.lengths)]

    def working_set_tokens(self) -> int:
        """What copies of all answers of a pass hold at their end; the last output token has no KV."""
        return max(self._tokens_of(pass_, self.samples if pass_.name == SAMPLING else self.beams) for pass_ in self.passes)

    def working_set_chunks(self, chunk: int) -> int:
        """The same in chunks; no arm has a host tier."""
        return ceil_div(self.working_set_tokens(), chunk)

    def describe(self) -> dict[str, Any]:
        """Passes, requests of each, answers (records) of each, and the lengths of each pass's prompts and outputs."""
        requests = len(self.lengths) // 2
        halves = [self.lengths[:requests], self.lengths[requests:]]
        return {
            "passes": [pass_.name for pass_ in self.passes],
            "requests_per_pass": requests,
            "answers": [requests * self.samples, requests * self.beams],
            "prompt_tokens": [[prompt for prompt, _ in half] for half in halves],
            "output_tokens": [[output for _, output in half] for half in halves],
        }

    def _tokens_of(self, pass_: Pass, answers: int) -> int:
        return answers * sum(prompt + output - 1 for prompt, output in (self.lengths[number] for number in pass_.doc_ids))

    def _prompt(self, number: int) -> tuple[int, ...]:
        first = Draws(self.seed, "sharing-first").integers(1, 0, self.vocab)[0]
        return distinct_prompt(first, number, self.lengths[number][0], self.vocab, Draws(self.seed, "sharing-prompt", number))


def make_sharing(config: SharingOptions, vocab: int) -> Sharing:
    """The workload a configuration describes.

    Args:
        vocab: token ids are drawn from ``0 .. vocab - 1``.

    Raises:
        UsageError: there are more beams than tokens to begin them with.
    """
    if config.beams > vocab:
        raise UsageError(f"--beams {config.beams}: each beam begins with another token, and the vocabulary has {vocab:,}; lower it")
    prompts, outputs = Draws(config.seed, "sharing-prompt-lengths"), Draws(config.seed, "sharing-output-lengths")
    lengths = tuple((config.prompt_lengths.draw(prompts), config.output_lengths.draw(outputs)) for _ in range(2 * config.batch_requests))
    return Sharing(config.seed, vocab, lengths, config.n, config.beams, config.sampling_temperature)
