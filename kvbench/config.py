"""The configuration of a run: every option, its unit, its default, its limits, and where it applies.

The command line is generated from these fields (:mod:`kvbench.cli.options`), a TOML file names them, and the manifest keeps them,
so an option exists in one place only.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from kvbench.errors import UsageError
from kvbench.workloads.passes import parse_pass


@dataclass(frozen=True, slots=True)
class Setting:
    """How a field is shown, and to what it applies: ``None`` means to every experiment, or to every runner."""

    panel: str
    unit: str = ""
    experiments: frozenset[str] | None = None
    runners: frozenset[str] | None = None


CYCLIC = Setting("Workload", experiments=frozenset({"cyclic"}))
TOKENS = Setting("Workload", unit="tokens", experiments=frozenset({"cyclic"}))
ENGINE = Setting("Engine", runners=frozenset({"engine"}))
ENGINE_TOKENS = Setting("Engine", unit="tokens", runners=frozenset({"engine"}))
TIER_GIB = Setting("Host tier", unit="GiB", runners=frozenset({"engine"}))
TIER_TOKENS = Setting("Host tier", unit="tokens", runners=frozenset({"engine"}))
RUN = Setting("Run")


def _split(value: object) -> object:
    """``"a,b"`` and ``["a,b", "c"]`` both mean a list of names."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        return value
    return [name for part in parts for name in ([word.strip() for word in part.split(",")] if isinstance(part, str) else [part])]


class RunConfig(BaseModel):
    """One run, fully said. Values are checked here; what only a model or a machine can tell is checked when it is known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    experiment: Annotated[Literal["cyclic"], RUN] = Field("cyclic", description="What is studied.")
    runner: Annotated[Literal["engine"], RUN] = Field("engine", description="Who executes the requests.")
    tier: Annotated[tuple[Literal["none", "cpu"], ...], BeforeValidator(_split), RUN] = Field(
        ("none", "cpu"),
        min_length=1,
        description="Arms to compare, each from a cold engine; the first is the baseline. Repeatable.",
    )
    repeats: Annotated[int, RUN] = Field(1, ge=1, le=1000, description="Whole runs; the order of the arms rotates by repeat.")
    concurrency: Annotated[int, RUN] = Field(1, ge=1, le=4096, description="Requests in flight at once (closed loop).")
    seed: Annotated[int, RUN] = Field(0, ge=0, le=2**63 - 1, description="Same seed, same token ids, on every machine.")

    docs: Annotated[int, CYCLIC] = Field(10, ge=1, le=100_000, description="Documents in a pass.")
    doc_tokens: Annotated[int, TOKENS] = Field(5011, ge=1, le=10_000_000, description="Length of each document.")
    documents: Annotated[Path | None, CYCLIC] = Field(
        None, description="Folder of your own text files, in place of made documents; tokenised by the model's tokenizer."
    )
    question_tokens: Annotated[int, TOKENS] = Field(14, ge=0, le=1_000_000, description="Question appended to each document.")
    output_tokens: Annotated[int, TOKENS] = Field(8, ge=1, le=1_000_000, description="Output of each request, exactly.")
    passes: Annotated[tuple[str, ...], BeforeValidator(_split), CYCLIC] = Field(
        ("sequential", "repeat", "reverse"),
        min_length=1,
        description="Readings of all documents, in this order: sequential, repeat, reverse, shuffle, zipf:S (S: skew, above 0).",
    )
    question: Annotated[Literal["same", "vary"], CYCLIC] = Field("same", description="Question of later passes: the same, or another.")
    overlap: Annotated[float, CYCLIC] = Field(0.0, ge=0, le=1, description="Share of each document's head that all have in common.")
    reuse: Annotated[float, CYCLIC] = Field(1.0, ge=0, le=1, description="Share of documents later passes read again; the rest are new.")

    model: Annotated[str, ENGINE] = Field(
        "tiny",
        min_length=1,
        description="A Hugging Face folder, or a shape with seeded random weights: tiny, qwen2.5-0.5b, qwen2.5-1.5b, llama-3.1-8b.",
    )
    kv_tokens: Annotated[int, ENGINE_TOKENS] = Field(21520, ge=1, le=10**10, description="Device pool, rounded down to whole blocks.")
    block_size: Annotated[int, ENGINE_TOKENS] = Field(16, ge=1, le=4096, description="What a KV block holds.")
    max_batch_tokens: Annotated[int, ENGINE_TOKENS] = Field(2048, ge=1, le=10_000_000, description="Token budget of one engine step.")
    device: Annotated[Literal["auto", "cpu", "cuda"], ENGINE] = Field("auto", description="auto: cuda where there is one.")
    dtype: Annotated[Literal["auto", "float64", "float32", "bfloat16", "float16"], ENGINE] = Field(
        "auto", description="Weights and KV; auto: float32 on cpu, bfloat16 on cuda."
    )
    compile: Annotated[bool, ENGINE] = Field(False, description="Run the model through torch's compiler (needs a C++ compiler).")

    host_gib: Annotated[float | Literal["auto"], TIER_GIB] = Field("auto", description="Size of the cpu tier; auto: the working set.")
    host_tokens: Annotated[int | None, TIER_TOKENS] = Field(None, ge=0, le=10**11, description="Size of the cpu tier, in tokens instead.")
    chunk_tokens: Annotated[int, TIER_TOKENS] = Field(256, ge=1, le=65536, description="What the cpu tier stores and evicts at once.")

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_no_switches(cls, values: Any) -> Any:
        """``docs = true`` would pass for 1, and an empty folder name for the current directory."""
        if isinstance(values, dict):
            for name, value in values.items():
                if isinstance(value, bool) and name in cls.model_fields and cls.model_fields[name].annotation is not bool:
                    raise ValueError(f"{flag(name)}: a number or a name is expected, not {str(value).lower()}")
            if values.get("documents") == "":
                raise ValueError("--documents: the name of the folder is empty")
        return values

    @field_validator("host_gib")
    @classmethod
    def _size_not_negative(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0 <= value <= 1e6:
            raise ValueError("Input should be 'auto' or between 0 and 1000000")
        return value

    @field_validator("passes")
    @classmethod
    def _passes_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            parse_pass(name)
        return value

    @field_validator("tier")
    @classmethod
    def _arms_differ(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("each tier may be named once")
        return value

    @model_validator(mode="after")
    def _options_apply(self) -> Self:
        for name in sorted(self.model_fields_set & set(self._not_applicable())):
            raise ValueError(f"{flag(name)} does not apply: {self._not_applicable()[name]}")
        if "cpu" in self.tier and self.chunk_tokens % self.block_size:
            raise ValueError(f"--chunk-tokens {self.chunk_tokens} is not a multiple of --block-size {self.block_size}")
        if self.kv_tokens < self.block_size:
            raise ValueError(f"--kv-tokens {self.kv_tokens} holds no block of --block-size {self.block_size}")
        return self

    def _not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason; giving one is wrong use, and the manifest leaves them out."""
        reasons: dict[str, str] = {}
        for name, setting in settings().items():
            if setting.experiments is not None and self.experiment not in setting.experiments:
                reasons[name] = f"the experiment is {self.experiment}"
            if setting.runners is not None and self.runner not in setting.runners:
                reasons[name] = f"the runner is {self.runner}"
        if self.documents is not None:
            for name in ("docs", "doc_tokens", "overlap", "reuse"):
                reasons[name] = "--documents brings its own documents"
        if "cpu" not in self.tier:
            for name in ("host_gib", "host_tokens", "chunk_tokens"):
                reasons[name] = "no arm has a cpu tier (--tier cpu)"
        if self.host_tokens is not None:
            reasons["host_gib"] = "--host-tokens gives the size already"
        if len(self.passes) == 1:
            for name in ("reuse", "question"):
                reasons[name] = "there is no later pass"
        if self.question_tokens == 0:
            reasons["question"] = "there is no question (--question-tokens 0)"
        return reasons

    def resolved(self) -> dict[str, Any]:
        """What the manifest keeps: every field that applies, defaults filled in. ``kvbench run --config`` reads it back."""
        left_out = set(self._not_applicable())
        return {name: value for name, value in self.model_dump(mode="json", exclude_none=True).items() if name not in left_out}


def settings() -> dict[str, Setting]:
    """Each field's :class:`Setting`, by field name, in the order in which help shows them."""
    return {name: next(item for item in field.metadata if isinstance(item, Setting)) for name, field in RunConfig.model_fields.items()}


def flag(name: str) -> str:
    """The command-line spelling of a field: ``doc_tokens`` is ``--doc-tokens``; the experiment is a plain word."""
    return "EXPERIMENT" if name == "experiment" else "--" + name.replace("_", "-")


def load_config(file: Path | None, given: Mapping[str, Any]) -> RunConfig:
    """The configuration of a file (TOML, or the manifest of a run) with the command line's options over it.

    Args:
        file: ``None`` for none. TOML keys are the options' names, with ``-`` or ``_``.
        given: only what the user gave on the command line, by field name.

    Raises:
        UsageError: the file cannot be read, or a value is wrong; names the key, the value and the reason.
    """
    values = {} if file is None else _read_config(file)
    try:
        return RunConfig.model_validate({**values, **given})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        source = f"{file}: " if name in values and name not in given else ""
        reason = first["msg"].removeprefix("Value error, ")
        if not name:
            raise UsageError(f"{file}: {reason}" if file is not None and not given else reason) from None
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{source}{name}: there is no such key; `kvbench run --help` lists the options") from None
        label = name if source else flag(name)
        raise UsageError(f"{source}{label}: {reason} (got {first['input']!r})") from None


def _read_config(file: Path) -> dict[str, Any]:
    """The options a TOML file or a manifest holds, by field name."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {file}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        if file.suffix != ".json":
            return _underscored(tomllib.loads(text))
        manifest = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--config {file}: {error}") from None
    values = manifest.get("config") if isinstance(manifest, dict) else None
    if not isinstance(values, dict):
        raise UsageError(f"--config {file}: not a run's manifest (it has no object config)")
    return values


def _underscored(values: dict[str, Any]) -> dict[str, Any]:
    """The same keys as field names; one that is there in both spellings is an error, as either might be meant."""
    named = {key.replace("-", "_"): value for key, value in values.items()}
    if len(named) < len(values):
        twice = next(key for key in values if "-" in key and key.replace("-", "_") in values)
        raise ValueError(f"{twice} is given twice, with - and with _")
    return named
