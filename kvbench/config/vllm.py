"""The options of vLLM servers: how kvbench starts them, and how it finds those that run already."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from kvbench.config.run import RunConfig
from kvbench.config.secrets import MASK, is_masked, mask_command, mask_value
from kvbench.config.settings import Setting, Settings, each_once, flag, split_names

VLLM = Setting("vLLM server")
SECONDS = Setting("vLLM server", unit="s")
ARGUMENT, VARIABLE = replace(VLLM, metavar="ARG"), replace(VLLM, metavar="K=V")
INTERPRETER, REDIS = replace(VLLM, metavar="PATH", basic=True), replace(VLLM, metavar="redis://HOST:PORT")
URL, HEADER = replace(VLLM, metavar="ARM=URL", basic=True), replace(VLLM, metavar="NAME:VALUE")

OPTIONAL_FIELDS = {
    "continuous_usage_stats": "tokens in a chunk are known only where each holds one; else times are those of chunks",
    "ignore_eos": "answers may be shorter than --output-tokens, so hits are an estimate, and E2EL and throughput are of unlike answers",
    "cache_salt": "what an earlier run left of the same prompts may be found again",
}
"""Fields of a request that a strict gateway may refuse, and what is unknown without each."""

OptionalField = Literal["continuous_usage_stats", "ignore_eos", "cache_salt"]

STARTED = ("startup_timeout", "vllm_python", "vllm_arg", "env", "kv_tokens", "block_size", "host_gib", "host_tokens", "dtype")
"""Options of servers that kvbench starts itself."""


def prefix_cache_off(arguments: Iterable[str]) -> str | None:
    """The argument of vLLM that turns its prefix cache off, the last one for or against it; ``None`` where it stays on."""
    found = None
    for argument in arguments:
        name = argument.replace("_", "-")
        if name in ("--enable-prefix-caching", "--no-enable-prefix-caching"):
            found = argument if name.startswith("--no-") else None
    return found


class StartOptions(Settings):
    """How a server is started; runs and ``kvbench serve`` have it."""

    vllm_python: Annotated[Path | None, INTERPRETER] = Field(
        None,
        description="Interpreter that has vllm (and lmcache); none: .venv-vllm/bin/python here, else kvbench's own.",
    )
    vllm_arg: Annotated[tuple[str, ...], ARGUMENT] = Field(
        (), description="One more argument of the server, its value after an equals sign. Repeatable."
    )
    env: Annotated[tuple[str, ...], VARIABLE] = Field(
        (), description="One variable of the servers' environment; kept masked unless named like OMP_* or VLLM_*. Repeatable."
    )
    startup_timeout: Annotated[float, SECONDS] = Field(600, gt=0, le=86_400, description="How long a server may take to be ready.")
    disk: Annotated[Path | None, VLLM] = Field(None, description="Folder for the files of the disk tier; they are removed with the server.")
    redis: Annotated[str | None, REDIS] = Field(None, description="Server of the redis tier.")


class HeaderOptions(Settings):
    """Who is asking a server that runs already; runs and plans have it."""

    header: Annotated[tuple[str, ...], HEADER] = Field((), description="Sent with every request to --url or --from-server. Repeatable.")
    api_key_env: Annotated[str | None, replace(VLLM, metavar="NAME")] = Field(
        None, description="Environment variable that holds the API key of --url or --from-server."
    )


class VllmOptions(StartOptions, HeaderOptions, RunConfig):
    """A run on vLLM servers."""

    request_timeout: Annotated[float, SECONDS] = Field(600, gt=0, le=86_400, description="After this a request has failed.")
    endpoint: Annotated[str, replace(VLLM, metavar="NAME")] = Field("completions", description="How tokens are asked for, by name.")
    without: Annotated[tuple[OptionalField, ...], BeforeValidator(split_names), each_once("field"), replace(VLLM, metavar="NAME,...")] = (
        Field((), description="Fields that requests leave out, as a gateway refuses them; what is then unknown is said.")
    )
    url: Annotated[tuple[str, ...], URL] = Field(
        (), description="A server that runs already, instead of starting one, as none=http://127.0.0.1:8000; one for each arm. Repeatable."
    )
    allow_reset: Annotated[bool, VLLM] = Field(
        False, description="Let the prefix caches of the servers of --url be emptied; what a tier holds stays."
    )
    vocab: Annotated[int | None, VLLM] = Field(
        None, ge=2, le=10**7, description="Token ids are below this; for --url where --model is no folder of this machine."
    )

    @property
    def attached(self) -> bool:
        """Whether the run drives servers that were there before it."""
        return bool(self.url)

    @property
    def answers_may_end_early(self) -> bool:
        """Whether the end-of-text token ends an answer."""
        return "ignore_eos" in self.without

    @model_validator(mode="after")
    def _answers_long_enough(self) -> Self:
        if self.answers_may_end_early and self.compares_outputs:
            raise ValueError("--without ignore_eos: this experiment needs answers as long as asked for; leave out other fields only")
        return self

    @property
    def pool_is_known(self) -> bool:
        """Unless both sizes are given, the server tells."""
        return "auto" not in (self.block_size, self.kv_tokens)

    @model_validator(mode="after")
    def _nothing_masked(self) -> Self:
        """What a manifest does not keep must be given again: masked, it would be sent as it is."""
        given = {"header": self.header, "env": self.env, "url": self.url, "vllm_arg": self.vllm_arg, "redis": (self.redis or "",)}
        for name, words in given.items():
            masked = next((word for word in words if is_masked(word)), None)
            if masked is not None:
                raise ValueError(f"{flag(name)} {masked}: it was masked in the manifest; give {flag(name)} again on the command line")
        return self

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        for name in ("disk", "redis"):
            if name not in self.tiers:
                reasons.setdefault(name, f"no arm is {name} (--tier {name})")
        for name in STARTED if self.url else ("header", "api_key_env", "allow_reset", "vocab"):
            reasons.setdefault(name, "--url names servers that run already" if self.url else "no server is named (--url)")
        return reasons

    def resolved(self) -> dict[str, Any]:
        """What the manifest keeps; secrets are masked, and must be given again."""
        values = super().resolved()
        masks: dict[str, Callable[[Any], Any]] = {
            "header": lambda words: [f"{word.partition(':')[0]}: {MASK}" for word in words],
            "env": lambda words: [mask_value("env", word) for word in words],
            "url": lambda words: [mask_value("url", word) for word in words],
            "vllm_arg": mask_command,
            "redis": lambda word: mask_value("redis", word),
        }
        return values | {name: mask(values[name]) for name, mask in masks.items() if name in values}
