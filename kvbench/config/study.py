"""The configuration that runs and plans have in common: what is read, by which model, and how large the tiers are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from kvbench.config.settings import Setting, Settings, flag, split_names
from kvbench.experiments.at_once.options import POOLS, LengthSpec
from kvbench.workloads.passes import parse_pass

DEFAULT_DOCS = 10
DEFAULT_OUTPUT_TOKENS = 8
DEFAULT_KV_TOKENS = 21520
DEFAULT_BLOCK_SIZE = 16

Auto = Literal["auto"]
Documents = Annotated[int, Field(ge=1, le=100_000)]
PoolTokens = Annotated[int, Field(ge=1, le=10**10)]
BlockTokens = Annotated[int, Field(ge=1, le=4096)]
Gibibytes = Annotated[float, Field(ge=0, le=1e6)]

CYCLIC = Setting("Workload", experiments=frozenset({"cyclic"}))
CYCLIC_TOKENS = Setting("Workload", unit="tokens", experiments=frozenset({"cyclic"}))
ANSWER_TOKENS = Setting("Workload", unit="tokens", metavar="N|SPEC")
TRACE = Setting("Workload", experiments=frozenset({"trace"}))
TRACE_TOKENS, TRACE_FILE = replace(TRACE, unit="tokens"), replace(TRACE, metavar="FILE")
MODEL = Setting("Model and pool")
POOL_TOKENS = Setting("Model and pool", unit="tokens")
TIERED = frozenset({"cyclic", "trace"})
"""Experiments whose arms are tiers; the others are of :mod:`kvbench.experiments.at_once.options`."""
TIER = Setting("Host tier", experiments=TIERED)
TIER_TOKENS, TIER_GIB = replace(TIER, unit="tokens"), replace(TIER, unit="GiB")
SIMULATOR = Setting("Simulator", runners=frozenset({"simulator"}))
SIMULATOR_RATE, SIMULATOR_MS = replace(SIMULATOR, unit="tokens/s"), replace(SIMULATOR, unit="ms")
SIMULATOR_RUN = replace(SIMULATOR, metavar="RUN_DIR")
RUN = Setting("Run")


class StudyConfig(Settings):
    """What is read, by which model, and how large the tiers are: common to runs and to plans."""

    docs: Annotated[Documents | Auto, CYCLIC] = Field(
        "auto", description=f"Documents in a pass; auto: {DEFAULT_DOCS}, on vllm as many as are 2.3 times the pool."
    )
    doc_tokens: Annotated[int, CYCLIC_TOKENS] = Field(5011, ge=1, le=10_000_000, description="Length of each document.")
    documents: Annotated[Path | None, CYCLIC] = Field(
        None, description="Folder of your own text files, in place of made documents; tokenised by the model's tokenizer."
    )
    question_tokens: Annotated[int, CYCLIC_TOKENS] = Field(14, ge=0, le=1_000_000, description="Question appended to each document.")
    output_tokens: Annotated[LengthSpec, ANSWER_TOKENS] = Field(
        "auto",
        description="Output of each request, exactly; where it is given, also in place of a trace's own; in pressure, fragmentation and "
        f"sharing also uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA; auto: {DEFAULT_OUTPUT_TOKENS}; there 128, lognormal:96:0.8 and 64.",
    )
    passes: Annotated[tuple[str, ...], BeforeValidator(split_names), CYCLIC] = Field(
        ("sequential", "repeat", "reverse"),
        min_length=1,
        description="Readings of all documents, in this order: sequential, repeat, reverse, shuffle, zipf:S (S: skew, above 0).",
    )
    question: Annotated[Literal["same", "vary"], CYCLIC] = Field("same", description="Question of later passes: the same, or another.")
    overlap: Annotated[float, CYCLIC] = Field(0.0, ge=0, le=1, description="Share of each document's head that all have in common.")
    reuse: Annotated[float, CYCLIC] = Field(1.0, ge=0, le=1, description="Share of documents later passes read again; the rest are new.")
    trace: Annotated[Path | None, TRACE_FILE] = Field(
        None, description="Requests as they were once asked, JSON lines: Mooncake's format, or prompt, messages or token_ids of your own."
    )
    trace_block_size: Annotated[int, TRACE_TOKENS] = Field(512, ge=1, le=65536, description="What a hash id of the trace stands for.")
    limit: Annotated[int | None, TRACE] = Field(None, ge=1, le=10**9, description="Only the first requests of the trace.")
    max_prompt_tokens: Annotated[int | None, TRACE_TOKENS] = Field(
        None, ge=1, le=10**9, description="Leave out requests of the trace with longer prompts; how many is said."
    )
    seed: Annotated[int, RUN] = Field(0, ge=0, le=2**63 - 1, description="Same seed, same token ids, on every machine.")

    model: Annotated[str, MODEL] = Field(
        "tiny",
        min_length=1,
        description="A Hugging Face folder, or a shape with seeded random weights: tiny, qwen2.5-0.5b, qwen2.5-1.5b, llama-3.1-8b; "
        "on vllm also a name that the server knows.",
    )
    kv_tokens: Annotated[PoolTokens | Auto, POOL_TOKENS] = Field(
        "auto",
        description=f"Device pool, rounded down to whole blocks; auto: {DEFAULT_KV_TOKENS:,}, on vllm what the server finds; in pressure "
        f"{POOLS['pressure']:,}, in fragmentation {POOLS['fragmentation']:,}.",
    )
    block_size: Annotated[BlockTokens | Auto, POOL_TOKENS] = Field(
        "auto", description=f"What a KV block holds; auto: {DEFAULT_BLOCK_SIZE}, on vllm the server's own."
    )

    host_gib: Annotated[Gibibytes | Auto, TIER_GIB] = Field("auto", description="Size of the cpu tier; auto: the working set.")
    host_tokens: Annotated[int | None, TIER_TOKENS] = Field(None, ge=0, le=10**11, description="Size of the cpu tier, in tokens instead.")
    chunk_tokens: Annotated[int, TIER_TOKENS] = Field(256, ge=1, le=65536, description="What the cpu tier stores and evicts at once.")

    prefill_rate: Annotated[float | None, SIMULATOR_RATE] = Field(
        None, gt=0, le=1e9, description="Prompt tokens computed a second; without rates no time is predicted."
    )
    restore_rate: Annotated[float | None, SIMULATOR_RATE] = Field(None, gt=0, le=1e12, description="Tokens loaded from the tier a second.")
    overhead_ms: Annotated[float | None, SIMULATOR_MS] = Field(
        None, ge=0, le=1e6, description="What a first token takes beside; with rates and without this: 0."
    )
    calibrate: Annotated[Path | None, SIMULATOR_RUN] = Field(
        None, description="Run folder of a measured run: rates that are not given are fitted to its requests."
    )

    @property
    def studied(self) -> str:
        """The experiment whose workload this is."""
        raise NotImplementedError

    @property
    def overrides_output(self) -> bool:
        """Whether ``output_tokens`` goes over a trace's own."""
        return "output_tokens" in self.model_fields_set

    @property
    def answer_tokens(self) -> int:
        """Output of every request of an experiment with documents or a trace."""
        return given_or(self.output_tokens, DEFAULT_OUTPUT_TOKENS)  # type: ignore[arg-type]  # validated to be one length

    @property
    def loads(self) -> bool:
        """Whether anything may be loaded from a host tier."""
        return True

    @model_validator(mode="after")
    def _answers_are_alike(self) -> Self:
        if self.studied in TIERED and self.output_tokens != "auto" and not isinstance(self.output_tokens, int):
            raise ValueError(f"--output-tokens {self.output_tokens}: in {self.studied} every answer has the same length; give a number")
        return self

    @field_validator("passes")
    @classmethod
    def _passes_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            parse_pass(name)
        return value

    @model_validator(mode="after")
    def _rates_go_together(self) -> Self:
        """Half of the rates would time half of the requests, and the median of those would be believed."""
        needed = ["prefill_rate", "restore_rate"] if self.loads else ["prefill_rate"]
        given = [name for name in ("prefill_rate", "restore_rate", "overhead_ms") if getattr(self, name) is not None]
        missing = [name for name in needed if getattr(self, name) is None]
        if self.calibrate is None and given and missing:
            raise ValueError(f"{flag(given[0])} needs {flag(missing[0])} too, or --calibrate RUN_DIR, which tells what is not given")
        return self

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing here, with the reason."""
        reasons: dict[str, str] = {}
        for name, setting in self.settings().items():
            if setting.experiments is not None and self.studied not in setting.experiments:
                reasons[name] = f"the experiment is {self.studied}"
        if self.documents is not None:
            for name in ("docs", "doc_tokens", "overlap", "reuse"):
                reasons[name] = "--documents brings its own documents"
        if self.host_tokens is not None:
            reasons["host_gib"] = "--host-tokens gives the size already"
        if len(self.passes) == 1:
            for name in ("reuse", "question"):
                reasons.setdefault(name, "there is no later pass")
        if self.question_tokens == 0:
            reasons.setdefault("question", "there is no question (--question-tokens 0)")
        return reasons


def given_or(value: int | Auto, default: int) -> int:
    """The value, or what ``auto`` means where nothing else tells."""
    return default if value == "auto" else value
