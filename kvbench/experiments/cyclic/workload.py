"""Experiment ``cyclic`` (after the published measurement): read documents in order, again in the same order, and in reverse.

When the documents exceed the device pool, LRU evicts each one just before it is read again, so the second pass hits nothing; what a host
tier then saves is the figure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kvbench.analysis.sizing import working_set_chunks
from kvbench.config.settings import given_or
from kvbench.experiments.cyclic.options import DEFAULT_DOCS, CyclicOptions, DocumentOptions
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.workload import Size, request_key
from kvbench.runners.base import Pace, Request
from kvbench.workloads.documents import Documents, MadeDocuments, TextDocuments, make_question
from kvbench.workloads.passes import Pass, plan_passes

AUTO_RATIO = 2.3
"""Working set ÷ device pool where documents are made to fit a server: that of the published measurement."""


@dataclass(frozen=True, slots=True)
class Cyclic:
    """The workload of one run: the documents, the passes over them, and the question of each pass."""

    documents: Documents
    passes: list[Pass]
    questions: list[list[int]]
    output_tokens: int
    arms: ClassVar[None] = None

    def requests(self, arm: str, repeat: int, pass_: Pass) -> list[Request]:
        """The requests of one pass, in order."""
        question = self.questions[pass_.index]
        return [
            Request(request_key(pass_, arm, repeat, position), self.documents.tokens(doc_id) + question, self.output_tokens)
            for position, doc_id in enumerate(pass_.doc_ids)
        ]

    def pace(self, pass_: Pass) -> Pace | None:
        """Documents have no times of their own."""
        return None

    def sizes(self) -> list[Size]:
        """Of every document with its question."""
        question = max(len(question) for question in self.questions)
        names = self.documents.names
        return [
            Size(f"document {doc_id if names is None else names[doc_id]}", self.documents.length(doc_id) + question, self.output_tokens)
            for doc_id in self._doc_ids()
        ]

    def describe(self) -> dict[str, Any]:
        """Documents, their lengths and names, the question's length, and requests a pass."""
        documents = self._doc_ids()
        return {
            "documents": len(documents),
            "document_tokens": [self.documents.length(doc_id) for doc_id in documents],
            "document_names": self.documents.names,
            "question_tokens": max(len(question) for question in self.questions),
            "requests_per_pass": len(self.passes[0].doc_ids),
        }

    def working_set_tokens(self) -> int:
        """Distinct document tokens, common heads counted once."""
        return working_set_chunks((self.documents.tokens(doc_id) for doc_id in self._doc_ids()), 1)

    def working_set_chunks(self, chunk: int) -> int:
        """Room a host tier needs, in chunks of ``chunk`` tokens, to keep every prompt and output of the run.

        The last output token has no KV; outputs are not known beforehand, so each prompt that they may carry over a chunk's end counts.
        """
        prompts = self._prompts()
        carried = sum((len(prompt) + self.output_tokens - 1) // chunk - len(prompt) // chunk for prompt in prompts)
        return working_set_chunks(prompts, chunk) + carried

    def _doc_ids(self) -> list[int]:
        """Every document that is read, once."""
        return sorted({doc_id for pass_ in self.passes for doc_id in pass_.doc_ids})

    def _prompts(self) -> list[list[int]]:
        """Every distinct prompt of the run."""
        pairs = {(doc_id, tuple(self.questions[pass_.index])) for pass_ in self.passes for doc_id in pass_.doc_ids}
        return [self.documents.tokens(doc_id) + list(question) for doc_id, question in sorted(pairs)]


def make_workload(config: CyclicOptions, facts: RunnerFacts) -> Cyclic:
    """The documents, as many as are asked for; on a server as many as exceed its pool."""
    docs = given_or(config.docs, DEFAULT_DOCS)
    if config.docs == "auto" and config.runner == "vllm":
        docs = math.ceil(AUTO_RATIO * facts.capacity.tokens / config.doc_tokens)
    return make_cyclic(config, docs, facts.vocab, facts.tokenizer)


def make_cyclic(config: DocumentOptions, docs: int, vocab: int, tokenizer: Path) -> Cyclic:
    """The workload that the options describe.

    Args:
        docs: how many documents are made, unless the user brings some.
        vocab: token ids are drawn from ``0 .. vocab - 1``.
        tokenizer: the model's ``tokenizer.json``, read only for ``--documents``.

    Raises:
        UsageError: the documents folder cannot be used.
    """
    documents: Documents
    if config.documents is None:
        documents = MadeDocuments(config.seed, config.doc_tokens, vocab, config.overlap)
    else:
        documents = TextDocuments(config.documents, tokenizer, vocab)
        docs = len(documents)
    passes = plan_passes(config.passes, docs, config.seed, config.reuse)
    questions = [
        make_question(config.seed, config.question_tokens, vocab, pass_.index if config.question == "vary" else None) for pass_ in passes
    ]
    return Cyclic(documents, passes, questions, config.answer_tokens)
