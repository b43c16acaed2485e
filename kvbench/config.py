"""The configuration of a run: every option, its unit, its default, its limits, and where it applies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from kvbench.settings import Setting, Settings, flag, load
from kvbench.workloads.passes import parse_pass

DEFAULT_DOCS = 10
DEFAULT_KV_TOKENS = 21520
DEFAULT_BLOCK_SIZE = 16

Auto = Literal["auto"]
Documents = Annotated[int, Field(ge=1, le=100_000)]
PoolTokens = Annotated[int, Field(ge=1, le=10**10)]
BlockTokens = Annotated[int, Field(ge=1, le=4096)]
Gibibytes = Annotated[float, Field(ge=0, le=1e6)]

CYCLIC = Setting("Workload", experiments=frozenset({"cyclic"}))
CYCLIC_TOKENS = Setting("Workload", unit="tokens", experiments=frozenset({"cyclic"}))
TRACE = Setting("Workload", experiments=frozenset({"trace"}))
MODEL = Setting("Model and pool")
POOL_TOKENS = Setting("Model and pool", unit="tokens")
TIER = Setting("Host tier")
TIER_TOKENS = Setting("Host tier", unit="tokens")
TIER_GIB = Setting("Host tier", unit="GiB")
ENGINE = Setting("Engine", runners=frozenset({"engine"}))
ENGINE_TOKENS = Setting("Engine", unit="tokens", runners=frozenset({"engine"}))
SIMULATOR = Setting("Simulator", runners=frozenset({"simulator"}))
RUN = Setting("Run")


def split_names(value: object) -> object:
    """``"a,b"`` and ``["a,b", "c"]`` both mean a list of names."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        return value
    return [name for part in parts for name in ([word.strip() for word in part.split(",")] if isinstance(part, str) else [part])]


class StudyConfig(Settings):
    """What is read, by which model, and how large the tiers are: common to runs and to plans."""

    docs: Annotated[Documents | Auto, CYCLIC] = Field("auto", description=f"Documents in a pass; auto: {DEFAULT_DOCS}.")
    doc_tokens: Annotated[int, CYCLIC_TOKENS] = Field(5011, ge=1, le=10_000_000, description="Length of each document.")
    documents: Annotated[Path | None, CYCLIC] = Field(
        None, description="Folder of your own text files, in place of made documents; tokenised by the model's tokenizer."
    )
    question_tokens: Annotated[int, CYCLIC_TOKENS] = Field(14, ge=0, le=1_000_000, description="Question appended to each document.")
    output_tokens: Annotated[int, CYCLIC_TOKENS] = Field(8, ge=1, le=1_000_000, description="Output of each request, exactly.")
    passes: Annotated[tuple[str, ...], BeforeValidator(split_names), CYCLIC] = Field(
        ("sequential", "repeat", "reverse"),
        min_length=1,
        description="Readings of all documents, in this order: sequential, repeat, reverse, shuffle, zipf:S (S: skew, above 0).",
    )
    question: Annotated[Literal["same", "vary"], CYCLIC] = Field("same", description="Question of later passes: the same, or another.")
    overlap: Annotated[float, CYCLIC] = Field(0.0, ge=0, le=1, description="Share of each document's head that all have in common.")
    reuse: Annotated[float, CYCLIC] = Field(1.0, ge=0, le=1, description="Share of documents later passes read again; the rest are new.")
    seed: Annotated[int, RUN] = Field(0, ge=0, le=2**63 - 1, description="Same seed, same token ids, on every machine.")

    model: Annotated[str, MODEL] = Field(
        "tiny",
        min_length=1,
        description="A Hugging Face folder, or a shape with seeded random weights: tiny, qwen2.5-0.5b, qwen2.5-1.5b, llama-3.1-8b.",
    )
    kv_tokens: Annotated[PoolTokens | Auto, POOL_TOKENS] = Field(
        "auto", description=f"Device pool, rounded down to whole blocks; auto: {DEFAULT_KV_TOKENS:,}."
    )
    block_size: Annotated[BlockTokens | Auto, POOL_TOKENS] = Field(
        "auto", description=f"What a KV block holds; auto: {DEFAULT_BLOCK_SIZE}."
    )

    host_gib: Annotated[Gibibytes | Auto, TIER_GIB] = Field("auto", description="Size of the cpu tier; auto: the working set.")
    host_tokens: Annotated[int | None, TIER_TOKENS] = Field(None, ge=0, le=10**11, description="Size of the cpu tier, in tokens instead.")
    chunk_tokens: Annotated[int, TIER_TOKENS] = Field(256, ge=1, le=65536, description="What the cpu tier stores and evicts at once.")

    @property
    def studied(self) -> str:
        """The experiment whose workload this is."""
        raise NotImplementedError

    @field_validator("passes")
    @classmethod
    def _passes_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            parse_pass(name)
        return value

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


class RunConfig(StudyConfig):
    """One run."""

    experiment: Annotated[Literal["cyclic"], RUN] = Field("cyclic", description="What is studied.")
    runner: Annotated[Literal["engine"], RUN] = Field("engine", description="Who executes the requests.")
    tier: Annotated[tuple[Literal["none", "cpu"], ...], BeforeValidator(split_names), RUN] = Field(
        ("none", "cpu"),
        min_length=1,
        description="Arms to compare, each from a cold engine; the first is the baseline. Repeatable.",
    )
    repeats: Annotated[int, RUN] = Field(1, ge=1, le=1000, description="Whole runs; the order of the arms rotates by repeat.")
    concurrency: Annotated[int, RUN] = Field(1, ge=1, le=4096, description="Requests in flight at once (closed loop).")

    max_batch_tokens: Annotated[int, ENGINE_TOKENS] = Field(2048, ge=1, le=10_000_000, description="Token budget of one engine step.")
    device: Annotated[Literal["auto", "cpu", "cuda"], ENGINE] = Field("auto", description="auto: cuda where there is one.")
    dtype: Annotated[Literal["auto", "float64", "float32", "bfloat16", "float16"], ENGINE] = Field(
        "auto", description="Weights and KV; auto: float32 on cpu, bfloat16 on cuda."
    )
    compile: Annotated[bool, ENGINE] = Field(False, description="Run the model through torch's compiler (needs a C++ compiler).")

    @property
    def studied(self) -> str:
        """The experiment."""
        return self.experiment

    @field_validator("tier")
    @classmethod
    def _arms_differ(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("each tier may be named once")
        return value

    @model_validator(mode="after")
    def _sizes_go_together(self) -> Self:
        block_size, kv_tokens = given_or(self.block_size, DEFAULT_BLOCK_SIZE), given_or(self.kv_tokens, DEFAULT_KV_TOKENS)
        if "cpu" in self.tier and self.chunk_tokens % block_size:
            raise ValueError(f"--chunk-tokens {self.chunk_tokens} is not a multiple of --block-size {block_size}")
        if kv_tokens < block_size:
            raise ValueError(f"--kv-tokens {kv_tokens} holds no block of --block-size {block_size}")
        return self

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        for name, setting in self.settings().items():
            if setting.runners is not None and self.runner not in setting.runners:
                reasons[name] = f"the runner is {self.runner}"
        if set(self.tier) == {"none"}:
            for name in ("host_gib", "host_tokens", "chunk_tokens"):
                reasons[name] = "no arm has a cpu tier (--tier cpu)"
        return reasons


def given_or(value: int | Auto, default: int) -> int:
    """The value, or what ``auto`` means where nothing else tells."""
    return default if value == "auto" else value


def load_config(file: Path | None, given: Mapping[str, Any]) -> RunConfig:
    """The configuration of a run; see :func:`kvbench.settings.load`."""
    return load(RunConfig, "kvbench run", file, given)


__all__ = ["RunConfig", "StudyConfig", "flag", "given_or", "load_config"]
