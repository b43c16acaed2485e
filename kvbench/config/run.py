"""The options that every run has, whatever its experiment and runner, and what both ask of each other.

The configuration of a run is one object of one class: the options of its experiment, those of its runner, and these, flat
(:func:`kvbench.experiments.registry.load_config`). A room knows the part that is its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from kvbench.config.common import DEFAULT_BLOCK_SIZE, DEFAULT_CHUNK_TOKENS, DEFAULT_KV_TOKENS, MODEL, RUN, CommonOptions, check_sizes
from kvbench.config.settings import Auto, Setting, given_or
from kvbench.config.slo import parse_slo

TIMES = Setting("Times")
BASIC, BASIC_TIMES = replace(RUN, basic=True), replace(TIMES, basic=True)


class RunConfig(CommonOptions):
    """One run. ``auto_repeats``: the repeats of ``auto``, if they take less than two minutes."""

    auto_repeats: ClassVar[int] = 1

    experiment: Annotated[str, BASIC] = Field("cyclic", description="Experiment to run.")
    runner: Annotated[str, BASIC] = Field("engine", description="Who runs the requests: engine, vllm; simulator predicts them.")
    repeats: Annotated[Annotated[int, Field(ge=1, le=1000)] | Auto, BASIC] = Field(
        "auto",
        description="Whole runs; the order of the arms rotates by repeat; auto: 1; where all requests are there at once, 3, or as many "
        "as take less than two minutes.",
    )
    concurrency: Annotated[int, BASIC_TIMES] = Field(
        1,
        ge=1,
        le=4096,
        description="Requests in flight at once (closed loop); several, as 1,4,16, are a sweep (--sweep).",
    )
    rate: Annotated[float | None, BASIC_TIMES] = Field(
        None, gt=0, le=1e6, description="Requests a second (open loop); each is sent at its time, whatever became of those before it."
    )
    arrivals: Annotated[Literal["constant", "poisson"], TIMES] = Field("constant", description="How the requests of a --rate are spaced.")
    slo: Annotated[str | None, replace(BASIC_TIMES, metavar="LIMITS")] = Field(
        None,
        description="Goodput limits (ms): ttft=2000,tpot=50; also e2el, and ttft_p95 and so on, which are on all requests together.",
    )
    dtype: Annotated[Literal["auto", "float64", "float32", "bfloat16", "float16"], replace(MODEL, basic=False)] = Field(
        "auto",
        description="Weights and KV; auto: float32 on cpu, bfloat16 on cuda, on vllm the server's own choice, on the simulator 16 bits.",
    )

    @field_validator("slo")
    @classmethod
    def _slo_is_one(cls, value: str | None) -> str | None:
        if value is not None:
            parse_slo(value)
        return value

    # What an experiment says, and runners ask.

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms, the baseline first."""
        raise NotImplementedError

    @property
    def planned_repeats(self) -> int:
        """Repeats; those of ``auto`` may become fewer when the first was measured."""
        return given_or(self.repeats, self.auto_repeats)

    @property
    def arm_option(self) -> str:
        """The option that names arms."""
        return "--arm"

    @property
    def tiers(self) -> tuple[str, ...]:
        """Names of the tiers that the arms have beside the device pool, ``none`` among them."""
        return ("none",)

    @property
    def has_tier(self) -> bool:
        """Whether any arm has a tier beside the device pool."""
        return set(self.tiers) != {"none"}

    @property
    def tier_chunk_tokens(self) -> int:
        """What a host tier stores and evicts at once, in tokens."""
        return DEFAULT_CHUNK_TOKENS

    @property
    def copies(self) -> bool:
        """Whether any arm copies KV between device and host."""
        return self.has_tier

    @property
    def swap_size(self) -> float | Auto:
        """GiB that preempted requests are swapped to; ``auto``: enough for all of them."""
        return "auto"

    @property
    def default_pool(self) -> int:
        """Tokens of the device pool where none are given."""
        return DEFAULT_KV_TOKENS

    @property
    def needs_small_pool(self) -> bool:
        """Whether the default pool holds on a server too: in as large a one as a server takes by itself nothing runs short."""
        return False

    @property
    def roomy_arm(self) -> str | None:
        """The arm whose pool is as large as all requests need, whatever the other arms have; ``None``: there is none."""
        return None

    @property
    def compares_outputs(self) -> bool:
        """Whether arms are compared by the token ids they give."""
        return False

    @property
    def history(self) -> int | None:
        """Tokens of history for which the machine's floors are measured; ``None``: they are not."""
        return None

    @property
    def pool_tokens(self) -> int:
        """Size of the device pool, where no server tells it."""
        return given_or(self.kv_tokens, self.default_pool)

    @property
    def pool_block_size(self) -> int:
        """Tokens a block of that pool holds."""
        return given_or(self.block_size, DEFAULT_BLOCK_SIZE)

    @property
    def in_flight(self) -> int:
        """Requests that are in flight at once in a closed loop."""
        return self.concurrency

    @property
    def shorter(self) -> str:
        """What to do about a request that is too long, for messages."""
        raise NotImplementedError

    @property
    def smaller(self) -> str:
        """Options that make a run take less memory, for messages."""
        raise NotImplementedError

    # What a runner says, and experiments ask.

    @property
    def pool_is_known(self) -> bool:
        """Whether the sizes of the pool and of its blocks are known before the runner is there, and there are blocks at all."""
        return True

    @property
    def step_tokens(self) -> int:
        """The most tokens that one step computes.

        Raises:
            NotImplementedError: the runner does not tell.
        """
        raise NotImplementedError

    @property
    def simulated(self) -> bool:
        """Whether nothing is measured: the run is a prediction itself."""
        return False

    @property
    def attached(self) -> bool:
        """Whether the run drives servers that were there before it."""
        return False

    @property
    def answers_may_end_early(self) -> bool:
        """Whether an answer may be shorter than asked for."""
        return False

    def resolved(self) -> dict[str, object]:
        """What the manifest keeps; the planned number of repeats."""
        values = super().resolved()
        return values | ({"repeats": self.planned_repeats} if "repeats" in values else {})

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing in this run, with the reason."""
        reasons = super().not_applicable()
        for name, setting in self.settings().items():
            if setting.runners is not None and self.runner not in setting.runners:
                reasons[name] = f"the runner is {self.runner}"
        if self.rate is None:
            reasons["arrivals"] = "there is no --rate"
        else:
            reasons["concurrency"] = "--rate sends each request at its own time"
        return reasons

    @model_validator(mode="after")
    def _sizes_go_together(self) -> Self:
        if self.pool_is_known:
            check_sizes(self.tier_chunk_tokens if self.has_tier else None, self.pool_block_size, self.pool_tokens)
        return self
