"""The work of one step as the model takes it: all tokens in one row, and whose next tokens come of it."""

from __future__ import annotations

from collections.abc import Sequence as Several

import torch

from kvbench.runners.engine.model.attention import Span
from kvbench.runners.engine.model.sampling import Pick, choose
from kvbench.runners.engine.scheduling.scheduler import Work
from kvbench.runners.engine.scheduling.sequence import Beam, Candidate, Sequence


class Batch:
    """One flat batch: the ``tokens`` of all work, their ``positions``, a span for each work, and the ``rows`` whose logits are wanted."""

    def __init__(self, works: Several[Work]) -> None:
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.spans: list[Span] = []
        self.rows: list[int] = []
        self._sampled: list[Sequence] = []
        self._picks: list[Pick] = []
        self._searched: list[Beam] = []
        searched_rows: list[int] = []
        for work in works:
            self.spans.append(Span(len(self.tokens), work.count, work.start, work.sequence.block_table))
            self.tokens += work.sequence.tokens[work.start : work.end]
            self.positions += range(work.start, work.end)
            last = len(self.tokens) - 1
            if work.sampled:
                self._picks += [Pick(len(self.rows), sequence.sampling, sequence.output_tokens) for sequence in work.sampled]
                self._sampled += work.sampled
                self.rows.append(last)
            elif work.searched is not None:
                self._searched.append(work.searched)
                searched_rows.append(last)
        self.rows += searched_rows

    def choose(self, logits: torch.Tensor) -> dict[int, int]:
        """The next token of each sequence that samples one, by its id, from ``[rows, vocabulary]``; beams get their candidates."""
        _offer(logits[len(logits) - len(self._searched) :], self._searched)
        return {id(sequence): token for sequence, token in zip(self._sampled, choose(logits, self._picks), strict=True)}


def _offer(logits: torch.Tensor, beams: Several[Beam]) -> None:
    """Give each beam its candidates, as many as its search has beams, from ``[beams, vocabulary]``; in float64, as scores are sums."""
    if not beams:
        return
    widths = [beam.search.width for beam in beams]
    best = logits.double().log_softmax(-1).topk(max(widths))
    for beam, width, tokens, values in zip(beams, widths, best.indices.tolist(), best.values.tolist(), strict=True):
        beam.candidates = [Candidate(*one) for one in zip(tokens[:width], values[:width], strict=True)]
