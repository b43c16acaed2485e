"""The configuration of a plan: the workload options that a run has, and what a plan must be told because nothing is measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from kvbench.config.common import DEFAULT_BLOCK_SIZE, DEFAULT_KV_TOKENS, MODEL, POOL_TOKENS, TIER_GIB, CommonOptions, TierSizes, check_sizes
from kvbench.config.settings import Auto, BlockTokens, Gibibytes, PoolTokens, Setting, given_or
from kvbench.config.simulator import SIMULATOR, RateOptions
from kvbench.config.vllm import VLLM, HeaderOptions
from kvbench.experiments.cyclic.options import BASIC, DEFAULT_DOCS, DocumentOptions, Documents
from kvbench.experiments.tiers.options import AnswerOptions
from kvbench.experiments.trace.options import TraceFileOptions

MODEL_BYTES = Setting("Model and pool", unit="bytes")
POOL_RANGE = replace(POOL_TOKENS, metavar="FROM:TO")
WINDOW = Setting("Times", unit="s")
SERVER_URL = replace(VLLM, metavar="URL")

OF_TRACES = (*TraceFileOptions.model_fields, "window")
OF_DOCUMENTS = tuple(DocumentOptions.model_fields.keys() - AnswerOptions.model_fields.keys() - CommonOptions.model_fields.keys())


class PlanConfig(DocumentOptions, TraceFileOptions, TierSizes, RateOptions, HeaderOptions):
    """One plan.

    Its defaults are the server of the published measurement: vLLM with LMCache, Qwen2.5-1.5B, and the pool that was left beside it. A plan
    is for a server that is still to be set up, so vLLM's rules are the default, and not those of kvbench's own engine.
    """

    docs: Annotated[Documents | Auto, BASIC] = Field("auto", description=f"Documents in a pass; auto: {DEFAULT_DOCS}.")
    model: Annotated[str, MODEL] = Field(
        "qwen2.5-1.5b",
        min_length=1,
        description="A Hugging Face folder, of which only config.json is read, or a shape: tiny, qwen2.5-0.5b, qwen2.5-1.5b, llama-3.1-8b.",
    )
    bytes_per_token: Annotated[int | None, MODEL_BYTES] = Field(
        None, ge=1, le=10**9, description="KV of a token, all layers, instead of a model."
    )
    kv_dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16", "fp8"], MODEL] = Field(
        "auto", description="Elements of the KV; auto: 16 bits, as servers keep it, or fp8 where the checkpoint says so."
    )
    kv_tokens: Annotated[PoolTokens | Auto, POOL_TOKENS] = Field(
        "auto", description=f"Device pool, rounded down to whole blocks; auto: {DEFAULT_KV_TOKENS:,}."
    )
    block_size: Annotated[BlockTokens | Auto, POOL_TOKENS] = Field(
        "auto", description=f"What a KV block holds; auto: {DEFAULT_BLOCK_SIZE}, as vLLM's on a GPU."
    )
    pool_tokens: Annotated[str | None, POOL_RANGE] = Field(
        None, description="Pools that the table and the plot go through, as 10000:60000; auto: past the one in which everything hits."
    )
    host_gib: Annotated[Gibibytes | Auto, TIER_GIB] = Field("auto", description="Size of the cpu tier; auto: what the plan recommends.")

    profile: Annotated[Literal["vllm", "engine", "documents"], SIMULATOR] = Field(
        "vllm", description="Whose cache is simulated: vLLM 0.32 with LMCache 0.5, kvbench's own engine, or one of whole documents."
    )
    window: Annotated[float | None, WINDOW] = Field(
        None, gt=0, le=10**9, description="Show a trace by windows of this length: what comes again, and from which tier."
    )
    from_server: Annotated[str | None, SERVER_URL] = Field(
        None, description="A vLLM server that runs, as http://127.0.0.1:8000: its block size, its pool and its model are taken from it."
    )

    @property
    def studied(self) -> str:
        """The experiment whose workload is planned for."""
        return "cyclic" if self.trace is None else "trace"

    @property
    def pool_range(self) -> tuple[int, int] | None:
        """Of ``pool_tokens``, in tokens; ``None``: the plan chooses."""
        return None if self.pool_tokens is None else _range(self.pool_tokens)

    def given_host_tokens(self, bytes_per_token: int) -> int | None:
        """Size of the cpu tier, in tokens; ``None``: the plan chooses."""
        if self.host_tokens is not None or self.host_gib == "auto":
            return self.host_tokens
        return int(self.host_gib * 2**30) // bytes_per_token

    @field_validator("pool_tokens")
    @classmethod
    def _pools_are_a_range(cls, value: str | None) -> str | None:
        if value is not None:
            _range(value)
        return value

    @model_validator(mode="after")
    def _sizes_go_together(self) -> Self:
        if self.from_server is not None or self.profile == "documents" or self.trace is not None:
            return self  # a trace's blocks are as large as the file allows, and what a tier needs of them is checked where there is one
        check_sizes(self.chunk_tokens, given_or(self.block_size, DEFAULT_BLOCK_SIZE), given_or(self.kv_tokens, DEFAULT_KV_TOKENS))
        return self

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this plan, with the reason."""
        reasons = super().not_applicable()
        reasons |= dict.fromkeys(OF_TRACES if self.trace is None else OF_DOCUMENTS, f"the experiment is {self.studied}")
        if self.trace is not None:
            for name in ("pool_tokens", "from_server", "prefill_rate", "restore_rate", "overhead_ms", "calibrate"):
                reasons[name] = "the plan is for a trace"
        if self.bytes_per_token is not None:
            reasons["kv_dtype"] = "--bytes-per-token says it already"
            if self.documents is None:
                reasons["model"] = "--bytes-per-token stands in its place"
        if self.profile == "documents":
            for name in ("block_size", "chunk_tokens", "from_server"):
                reasons[name] = "the profile documents keeps whole documents"
        if self.from_server is None:
            reasons |= dict.fromkeys(("header", "api_key_env"), "no server is named (--from-server)")
        else:
            for name in ("kv_tokens", "block_size"):
                reasons[name] = "--from-server tells it"
            if self.profile != "vllm":
                reasons["from_server"] = f"the profile is {self.profile}, and the server is vLLM"
        return reasons


def _range(text: str) -> tuple[int, int]:
    """``FROM:TO`` in tokens; ``ValueError``: it is no such range."""
    low, colon, high = text.partition(":")
    if not (colon and low.isdecimal() and high.isdecimal() and 1 <= int(low) < int(high) <= 10**10):
        raise ValueError("FROM:TO in tokens is expected, the smaller one first, as in 10000:60000")
    return int(low), int(high)
