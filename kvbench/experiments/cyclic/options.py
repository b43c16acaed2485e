"""The options of ``cyclic``: the documents, and the passes over them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from kvbench.config.common import RUN, CommonOptions
from kvbench.config.settings import Auto, Setting, split_names
from kvbench.experiments.tiers.options import AnswerOptions, TierOptions
from kvbench.workloads.passes import parse_pass

DEFAULT_DOCS = 10
Documents = Annotated[int, Field(ge=1, le=100_000)]

DOCUMENTS = Setting("Workload")
BASIC = replace(DOCUMENTS, basic=True)
BASIC_TOKENS, TOKENS = replace(BASIC, unit="tokens"), replace(DOCUMENTS, unit="tokens")


class DocumentOptions(AnswerOptions, CommonOptions):
    """What is read, and in which order; runs and plans have it."""

    docs: Annotated[Documents | Auto, BASIC] = Field(
        "auto", description=f"Documents in a pass; auto: {DEFAULT_DOCS}, on vllm as many as are 2.3 times the pool."
    )
    doc_tokens: Annotated[int, BASIC_TOKENS] = Field(5011, ge=1, le=10_000_000, description="Length of each document.")
    documents: Annotated[Path | None, BASIC] = Field(
        None, description="Folder of your own text files, instead of synthetic documents; tokenised by the model's tokenizer."
    )
    question_tokens: Annotated[int, TOKENS] = Field(14, ge=0, le=1_000_000, description="Question appended to each document.")
    passes: Annotated[tuple[str, ...], BeforeValidator(split_names), BASIC] = Field(
        ("sequential", "repeat", "reverse"),
        min_length=1,
        description="Readings of all documents, in this order: sequential, repeat, reverse, shuffle, zipf:S (S: skew, above 0).",
    )
    question: Annotated[Literal["same", "vary"], DOCUMENTS] = Field("same", description="Question of later passes: the same, or another.")
    overlap: Annotated[float, DOCUMENTS] = Field(0.0, ge=0, le=1, description="Share of each document's head that all have in common.")
    reuse: Annotated[float, DOCUMENTS] = Field(1.0, ge=0, le=1, description="Share of documents later passes read again; the rest are new.")

    @field_validator("passes")
    @classmethod
    def _passes_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            parse_pass(name)
        return value

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing here, with the reason."""
        reasons = super().not_applicable()
        if self.documents is not None:
            for name in ("docs", "doc_tokens", "overlap", "reuse"):
                reasons[name] = "--documents brings its own documents"
        if len(self.passes) == 1:
            for name in ("reuse", "question"):
                reasons.setdefault(name, "there is no later pass")
        if self.question_tokens == 0:
            reasons.setdefault("question", "there is no question (--question-tokens 0)")
        return reasons


class CyclicOptions(DocumentOptions, TierOptions):
    """A run of ``cyclic``."""

    controls: Annotated[bool, RUN] = Field(
        False, description="Add two runs in which no tier can help: nothing is read again, everything fits. A gain there is no tier's."
    )

    @property
    def shorter(self) -> str:
        """What to do about a request that is too long, for messages."""
        return "shorten the documents" if self.documents is not None else "shorten the documents (--doc-tokens)"

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        if (why := self._no_controls()) is not None:
            reasons.setdefault("controls", why)
        return reasons

    def _no_controls(self) -> str | None:
        """Why there is nothing to control, or no sound way to."""
        if self.simulated:
            return "a prediction has no noise, and measures nothing that could be wrong"
        if self.documents is not None:
            return "files of --documents may begin alike, and there are no others of their kind; synthetic documents are sure to be new"
        if len(self.tier) == 1:
            return "there is one arm, and nothing to gain over it"
        return "there is no later pass" if len(self.passes) == 1 else None
