"""The configuration of a run: every option, its unit, its default, its limits, and where it applies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from kvbench.config.secrets import MASK, is_masked, mask_command, mask_value
from kvbench.config.settings import Setting, flag, load, split_names
from kvbench.config.study import DEFAULT_BLOCK_SIZE, DEFAULT_KV_TOKENS, MODEL, RUN, SIMULATOR, TIERED, StudyConfig, given_or
from kvbench.experiments.at_once.options import BATCH_EXPERIMENTS, OUTPUTS, POOLS, PROMPTS, REQUESTS, TEMPERATURES, BatchConfig
from kvbench.experiments.pressure.history import arrange
from kvbench.workloads.lengths import Lengths, parse_lengths

Tier = Literal["none", "cpu", "lmcache-inproc", "disk", "redis", "native"]

TRACE_TIMES = Setting("Times", experiments=frozenset({"trace"}))
TIER_ARMS = Setting("Run", experiments=TIERED)
ENGINE = Setting("Engine", runners=frozenset({"engine"}))
ENGINE_TOKENS = Setting("Engine", unit="tokens", runners=frozenset({"engine"}))
VLLM = Setting("vLLM server", runners=frozenset({"vllm"}))
VLLM_SECONDS = Setting("vLLM server", unit="s", runners=frozenset({"vllm"}))
VLLM_ARG, VLLM_ENV = replace(VLLM, metavar="ARG"), replace(VLLM, metavar="K=V")
VLLM_PATH, VLLM_ADDRESS = replace(VLLM, metavar="PATH"), replace(VLLM, metavar="redis://HOST:PORT")
ATTACH_URL, ATTACH_HEADER = replace(VLLM, metavar="ARM=URL"), replace(VLLM, metavar="NAME:VALUE")
RUNNERS: dict[str, tuple[str, ...]] = {
    "cyclic": ("engine", "vllm", "simulator"),
    "trace": ("engine", "vllm", "simulator"),
    "pressure": ("engine", "vllm"),
    "fragmentation": ("engine",),
    "sharing": ("engine",),
}
TIMES = Setting("Times")


class RunConfig(StudyConfig, BatchConfig):
    """One run."""

    experiment: Annotated[Literal["cyclic", "trace", "pressure", "fragmentation", "sharing"], RUN] = Field(
        "cyclic",
        description="What is studied: documents read again, a trace, KV that runs out, memory that is wasted, KV that is shared.",
    )
    runner: Annotated[Literal["engine", "vllm", "simulator"], RUN] = Field(
        "engine", description="Who executes the requests; simulator: nobody, their tokens by tier are predicted."
    )
    tier: Annotated[tuple[Tier, ...], BeforeValidator(split_names), TIER_ARMS] = Field(
        ("none", "cpu"),
        min_length=1,
        description="Arms to compare, each from a cold engine; the first is the baseline. Those beside none and cpu need --runner vllm. "
        "Repeatable.",
    )
    repeats: Annotated[int, RUN] = Field(1, ge=1, le=1000, description="Whole runs; the order of the arms rotates by repeat.")
    controls: Annotated[bool, replace(RUN, experiments=frozenset({"cyclic"}))] = Field(
        False, description="Add two runs in which no tier can help: nothing is read again, everything fits. A gain there is no tier's."
    )
    concurrency: Annotated[int, TIMES] = Field(
        1,
        ge=1,
        le=4096,
        description="Requests in flight at once (closed loop), in pressure all of them unless given; several, as 1,4,16, are a sweep "
        "(--sweep).",
    )
    speedup: Annotated[float, TRACE_TIMES] = Field(
        1.0, gt=0, le=1e9, description="How many times as fast as its own times a trace is replayed."
    )
    rate: Annotated[float | None, TIMES] = Field(
        None, gt=0, le=1e6, description="Requests a second (open loop): each is sent at its time, whatever became of those before it."
    )
    arrivals: Annotated[Literal["constant", "poisson"], TIMES] = Field("constant", description="How the requests of a --rate are spaced.")

    max_batch_tokens: Annotated[int, ENGINE_TOKENS] = Field(2048, ge=1, le=10_000_000, description="Token budget of one engine step.")
    device: Annotated[Literal["auto", "cpu", "cuda"], ENGINE] = Field("auto", description="auto: cuda where there is one.")
    dtype: Annotated[Literal["auto", "float64", "float32", "bfloat16", "float16"], MODEL] = Field(
        "auto",
        description="Weights and KV; auto: float32 on cpu, bfloat16 on cuda, on vllm the server's own choice, on the simulator 16 bits.",
    )
    link_gbps: Annotated[float | None, replace(ENGINE, unit="GB/s")] = Field(
        None,
        gt=0,
        le=1e4,
        description="Slow copies between device and host down to this, each way: a link is simulated, and every output says so.",
    )
    compile: Annotated[bool, ENGINE] = Field(False, description="Run the model through torch's compiler (needs a C++ compiler).")

    profile: Annotated[Literal["engine", "vllm", "documents"], SIMULATOR] = Field(
        "engine",
        description="Whose cache is simulated: kvbench's own engine, vLLM 0.32 with LMCache 0.5, or one of whole documents.",
    )
    vllm_python: Annotated[Path | None, VLLM_PATH] = Field(
        None, description="Interpreter of the environment that has vllm (and lmcache); the one kvbench runs in where none is given."
    )
    vllm_arg: Annotated[tuple[str, ...], VLLM_ARG] = Field(
        (), description="One more argument of the server, its value after an equals sign. Repeatable."
    )
    env: Annotated[tuple[str, ...], VLLM_ENV] = Field((), description="One variable of the servers' environment. Repeatable.")
    startup_timeout: Annotated[float, VLLM_SECONDS] = Field(600, gt=0, le=86_400, description="How long a server may take to be ready.")
    request_timeout: Annotated[float, VLLM_SECONDS] = Field(600, gt=0, le=86_400, description="After this a request has failed.")
    disk: Annotated[Path | None, VLLM] = Field(None, description="Folder for the files of the disk tier; they are removed with the server.")
    redis: Annotated[str | None, VLLM_ADDRESS] = Field(None, description="Server of the redis tier.")
    url: Annotated[tuple[str, ...], ATTACH_URL] = Field(
        (), description="A server that runs already, in place of starting one, as none=http://127.0.0.1:8000; one for each arm. Repeatable."
    )
    header: Annotated[tuple[str, ...], ATTACH_HEADER] = Field((), description="Sent with every request to --url. Repeatable.")
    api_key_env: Annotated[str | None, replace(VLLM, metavar="NAME")] = Field(
        None, description="Environment variable that holds the API key of --url."
    )
    allow_reset: Annotated[bool, VLLM] = Field(False, description="Let the caches of the servers of --url be emptied.")
    vocab: Annotated[int | None, VLLM] = Field(
        None, ge=2, le=10**7, description="Token ids are below this; for --url where --model is no folder of this machine."
    )

    @property
    def studied(self) -> str:
        """The experiment."""
        return self.experiment

    @model_validator(mode="after")
    def _runner_has_tiers(self) -> Self:
        """Only a vLLM server has tiers beside ``none`` and ``cpu``."""
        for name in self.tier:
            if self.runner != "vllm" and name not in ("none", "cpu"):
                raise ValueError(f"--tier {name} needs --runner vllm (the runner is {self.runner})")
        return self

    @model_validator(mode="after")
    def _runner_has_experiment(self) -> Self:
        """What a runner cannot do is refused before it is started."""
        if self.runner not in RUNNERS[self.experiment]:
            can = " or ".join(RUNNERS[self.experiment])
            raise ValueError(f"the experiment {self.experiment} needs --runner {can} (the runner is {self.runner})")
        wrong = set(self.arms) - {"ample", "recompute"}
        if self.experiment == "pressure" and self.runner == "vllm" and wrong:
            raise ValueError(f"--arm {min(wrong)}: vLLM has ample and recompute only")
        if self.context is not None and "reserve" in self.arms:
            raise ValueError("--arm reserve: nothing runs short there, so --context has no history to bring back; leave the arm out")
        return self

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms, the baseline first."""
        if self.experiment == "pressure":
            own = () if self.runner == "vllm" else ("swap",) if self.context is not None else ("swap", "reserve")
            return self.arm or ("ample", "recompute", *own)
        if self.experiment == "fragmentation":
            return ("reserve-max", "reserve-own", *(f"paged-{size}" for size in self.block_sizes))
        return ("copy-on-write", "copying") if self.experiment == "sharing" else self.tier

    @property
    def batch_requests(self) -> int:
        """Requests of an experiment of :mod:`kvbench.experiments.at_once.options`; two with a ``context``."""
        return 2 if self.context is not None else given_or(self.requests, REQUESTS[self.experiment])

    @property
    def prompt_lengths(self) -> Lengths:
        """Of those requests."""
        return parse_lengths(str(PROMPTS[self.experiment] if self.prompt_tokens == "auto" else self.prompt_tokens))

    @property
    def output_lengths(self) -> Lengths:
        """Of those requests."""
        return parse_lengths(str(OUTPUTS[self.experiment] if self.output_tokens == "auto" else self.output_tokens))

    @property
    def sampling_temperature(self) -> float:
        """Of those requests; 0: greedy."""
        return TEMPERATURES.get(self.experiment, 0.0) if self.temperature == "auto" else self.temperature

    @property
    def pool_tokens(self) -> int:
        """Size of the device pool, where no server tells it."""
        if self.context is not None:
            return arrange(self.context, self.pool_block_size, self.max_batch_tokens).pool_blocks * self.pool_block_size
        return given_or(self.kv_tokens, POOLS.get(self.experiment, DEFAULT_KV_TOKENS))

    @property
    def pool_block_size(self) -> int:
        """Tokens a block of that pool holds."""
        return given_or(self.block_size, DEFAULT_BLOCK_SIZE)

    @property
    def in_flight(self) -> int:
        """Requests that are in flight at once in a closed loop."""
        at_once = self.experiment in BATCH_EXPERIMENTS and "concurrency" not in self.model_fields_set
        return self.batch_requests if at_once else self.concurrency

    @property
    def shorter(self) -> str:
        """What to do about a request that is too long, for messages."""
        if self.experiment == "cyclic":
            return "shorten the documents" if self.documents is not None else "shorten the documents (--doc-tokens)"
        if self.experiment == "trace":
            return "leave it out"
        if self.experiment == "fragmentation":
            return "lower --max-length"
        return "lower --context" if self.context is not None else "lower --prompt-tokens or --output-tokens"

    @property
    def smaller(self) -> str:
        """Options that make a run take less memory, for messages."""
        return "--kv-tokens, --swap-gib or --requests" if self.experiment in BATCH_EXPERIMENTS else "--kv-tokens, --host-gib or --docs"

    @property
    def keeps_times(self) -> bool:
        """Whether a trace's own times are the pace: nothing else was asked for."""
        return self.rate is None and "concurrency" not in self.model_fields_set

    @model_validator(mode="after")
    def _trace_named(self) -> Self:
        if self.experiment == "trace" and self.trace is None:
            raise ValueError("the experiment trace needs --trace FILE, the requests to replay")
        return self

    @model_validator(mode="after")
    def _nothing_masked(self) -> Self:
        """What a manifest does not keep must be given again: masked, it would be sent as it is."""
        given = {"header": self.header, "env": self.env, "url": self.url, "vllm_arg": self.vllm_arg, "redis": (self.redis or "",)}
        for name, words in given.items():
            masked = next((word for word in words if is_masked(word)), None)
            if masked is not None:
                raise ValueError(f"{flag(name)} {masked}: it was masked in the manifest; give {flag(name)} again on the command line")
        return self

    @field_validator("tier", "arm", "block_sizes")
    @classmethod
    def _arms_differ(cls, value: tuple[object, ...], info: ValidationInfo) -> tuple[object, ...]:
        if len(set(value)) != len(value):
            raise ValueError(f"each {str(info.field_name).removesuffix('s').replace('_', ' ')} may be named once")
        return value

    @model_validator(mode="after")
    def _sizes_go_together(self) -> Self:
        if self.runner == "vllm" and "auto" in (self.block_size, self.kv_tokens):
            return self  # the server tells
        if self.runner == "simulator" and self.profile == "documents":
            return self  # there are no blocks
        block_size, kv_tokens = self.pool_block_size, self.pool_tokens
        if self.has_tier and self.chunk_tokens % block_size:
            raise ValueError(f"--chunk-tokens {self.chunk_tokens} is not a multiple of --block-size {block_size}")
        if kv_tokens < block_size:
            raise ValueError(f"--kv-tokens {kv_tokens} holds no block of --block-size {block_size}")
        return self

    @model_validator(mode="after")
    def _longest_fits_every_arm(self) -> Self:
        """The longest request of ``fragmentation`` must fit the pool alone, whatever the block size."""
        if self.experiment != "fragmentation":
            return self
        unit = self.pool_block_size
        tokens = self.pool_tokens // unit * unit  # what the pool of the other arms holds, in whole blocks
        for size in (unit, *self.block_sizes):
            blocks, pool = -(-self.max_length // size), tokens // size
            if pool == 0:
                raise ValueError(f"--block-sizes {size}: the pool (--kv-tokens {self.pool_tokens}) holds no block of it")
            if blocks > pool:
                raise ValueError(
                    f"--max-length {self.max_length} takes {blocks:,} blocks of {size}, and the pool (--kv-tokens {self.pool_tokens}) has "
                    f"{pool:,}; --kv-tokens {-(-blocks * size // unit) * unit} holds one request"
                )
        prompt, output = self.prompt_lengths.fixed, self.output_lengths.fixed
        if self.lengths is None and prompt is not None and prompt + (output or 1) > self.max_length:
            what = f"{prompt} of --prompt-tokens and {output or 1} of output"
            raise ValueError(f"--max-length {self.max_length} is less than {what}; raise it")
        return self

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        for name, setting in self.settings().items():
            if setting.runners is not None and self.runner not in setting.runners:
                reasons[name] = f"the runner is {self.runner}"
        if self.experiment in BATCH_EXPERIMENTS:
            reasons |= self._batch_reasons()
        elif not self.has_tier:
            for name in ("host_gib", "host_tokens", "chunk_tokens"):
                reasons[name] = "no arm has a cpu tier (--tier cpu)"
            reasons.setdefault("restore_rate", "no arm has a cpu tier (--tier cpu)")
        if self.runner == "simulator":
            reasons["repeats"] = "a prediction is the same every time"
            if self.profile == "documents":
                reasons |= dict.fromkeys(("block_size", "chunk_tokens"), "the profile documents keeps whole documents")
        if (why := self._no_controls()) is not None:
            reasons.setdefault("controls", why)
        if not self.has_tier and "swap" not in self.arms:
            reasons.setdefault("link_gbps", "no arm copies between device and host (--tier cpu, --arm swap)")
        if self.rate is None:
            reasons["arrivals"] = "there is no --rate"
        else:
            reasons["concurrency"] = "--rate sends each request at its own time"
        if self.experiment == "trace":
            if not self.overrides_output:
                reasons["output_tokens"] = "the trace has its own"
            if self.keeps_times:
                reasons["concurrency"] = "the trace has its own times"
            else:
                reasons["speedup"] = f"{flag('concurrency' if self.rate is None else 'rate')} sends in place of the trace's own times"
        for name in ("disk", "redis"):
            if name not in self.tier:
                reasons.setdefault(name, f"no arm is {name} (--tier {name})")
        attached = ("startup_timeout", "vllm_python", "vllm_arg", "env", "kv_tokens", "block_size", "host_gib", "host_tokens", "dtype")
        for name in attached if self.url else ("header", "api_key_env", "allow_reset", "vocab"):
            reasons.setdefault(name, "--url names servers that run already" if self.url else "no server is named (--url)")
        return reasons

    def _no_controls(self) -> str | None:
        """Why there is nothing to control, or no sound way to."""
        if self.runner == "simulator":
            return "a prediction has no noise, and measures nothing that could be wrong"
        if self.documents is not None:
            return "files of --documents may begin alike, and there are no others of their kind; made documents are sure to be new"
        if len(self.tier) == 1:
            return "there is one arm, and nothing to gain over it"
        return "there is no later pass" if len(self.passes) == 1 else None

    def _batch_reasons(self) -> dict[str, str]:
        """Fields that mean nothing with these arms."""
        reasons: dict[str, str] = {}
        if "swap" not in self.arms:
            reasons["swap_gib"] = "no arm swaps (--arm swap)"
        if self.context is not None:
            reasons |= dict.fromkeys(
                ("requests", "prompt_tokens", "output_tokens", "kv_tokens", "concurrency", "rate", "victim"),
                "--context says what the two requests are",
            )
        if self.lengths is not None:
            reasons |= dict.fromkeys(("requests", "prompt_tokens", "output_tokens"), "--lengths brings its own requests")
        if self.experiment == "fragmentation":
            reasons["block_size"] = "the arms have block sizes of their own (--block-sizes)"
        if self.experiment != "pressure":
            reasons |= dict.fromkeys(("rate", "concurrency"), "all requests are there at the start")
        return reasons

    def resolved(self) -> dict[str, Any]:
        """What the manifest keeps; secrets are masked, and must be given again."""
        values = super().resolved()
        if self.experiment in BATCH_EXPERIMENTS:
            said = {
                "arm": list(self.arms),
                "requests": self.batch_requests,
                "prompt_tokens": PROMPTS[self.experiment] if self.prompt_tokens == "auto" else self.prompt_tokens,
                "output_tokens": OUTPUTS[self.experiment] if self.output_tokens == "auto" else self.output_tokens,
                "temperature": self.sampling_temperature,
            }
            values |= {name: value for name, value in said.items() if name in values}
            if "concurrency" not in self.model_fields_set:  # all requests are in flight at once
                values.pop("concurrency", None)
        elif values.get("output_tokens") == "auto":
            values["output_tokens"] = self.answer_tokens
        masks: dict[str, Callable[[Any], Any]] = {
            "header": lambda words: [f"{word.partition(':')[0]}: {MASK}" for word in words],
            "env": lambda words: [mask_value("env", word) for word in words],
            "url": lambda words: [mask_value("url", word) for word in words],
            "vllm_arg": mask_command,
            "redis": lambda word: mask_value("redis", word),
        }
        return values | {name: mask(values[name]) for name, mask in masks.items() if name in values}

    @property
    def loads(self) -> bool:
        """Whether any arm has a tier."""
        return self.has_tier

    @property
    def has_tier(self) -> bool:
        """Whether any arm has a tier beside the device pool."""
        return self.experiment in TIERED and set(self.tier) != {"none"}


def load_config(file: Path | None, given: Mapping[str, Any]) -> RunConfig:
    """The configuration of a run; see :func:`kvbench.config.settings.load`."""
    return load(RunConfig, "kvbench run", file, given)
