"""What simulated arms are started from: a profile, the sizes, and the rates that turn tokens into times. No model is loaded."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvbench.config.common import DEFAULT_BLOCK_SIZE, DEFAULT_KV_TOKENS
from kvbench.config.settings import given_or
from kvbench.config.simulator import SimulatorOptions
from kvbench.errors import UsageError
from kvbench.models.config import count_of, read_config, text_part
from kvbench.models.kv_size import kv_size
from kvbench.models.units import ceil_div
from kvbench.runners.base import ArmSetup, Clock, DeviceCapacity
from kvbench.runners.profiles import PROFILES
from kvbench.runners.simulator.host_tier import chunks_to_hold
from kvbench.runners.simulator.prediction import Predictor
from kvbench.runners.simulator.runner import SimulatorRunner
from kvbench.runners.simulator.simulator import CacheSizes
from kvbench.runs.calibration import complete, describe_fit
from kvbench.runs.rates import Rates
from kvbench.runs.run_folder import read_run


class SimulatorBackend:
    """A profile at given sizes, from which each arm gets a cold simulator."""

    nonce: str | None = None

    def __init__(self, config: SimulatorOptions) -> None:
        """Read the model's sizes and the run that rates are fitted to.

        Raises ``UsageError``: the model's config cannot be used, or the run to calibrate with tells too little.
        """
        self._profile = PROFILES[config.profile]
        self.chunk_tokens = config.tier_chunk_tokens if self._profile.host is not None else 1  # whole documents have no chunks
        self._config = config
        model = read_config(config.model)
        text = text_part(model)
        self.vocab, self.tokenizer = count_of(text, config.model, "vocab_size"), Path(config.model) / "tokenizer.json"
        says_longest = text.get("max_position_embeddings") is not None
        self._max_tokens = count_of(text, config.model, "max_position_embeddings") if says_longest else None
        self._longest = 1
        """Tokens of the longest request checked so far, on which it hangs what a token takes where layers have a window."""
        # Whole documents have no blocks: their pool is used to the token.
        block_size = 1 if self._profile.device is None else given_or(config.block_size, DEFAULT_BLOCK_SIZE)
        self.capacity = DeviceCapacity(given_or(config.kv_tokens, DEFAULT_KV_TOKENS) // block_size * block_size, block_size)
        self._rates, self._described_rates = _find_rates(config)

    @property
    def bytes_per_token(self) -> int:
        """KV bytes a token takes; raises ``UsageError`` if the model's KV is of a kind that has no rule."""
        try:
            return kv_size(self._config.model, self._config.dtype, self._longest).bytes_per_token
        except UsageError as error:
            raise UsageError(f"{str(error).partition(';')[0]}; give --host-tokens instead of --host-gib") from None

    def profile(self, arm: str) -> str | None:
        """The one that is simulated, on every arm."""
        return self._profile.name

    def host_room(self, tokens: int) -> int:
        """As the profile's watermark asks."""
        if self._profile.host is None:
            return tokens
        return chunks_to_hold(tokens // self.chunk_tokens, self._profile.host) * self.chunk_tokens

    def describe(self) -> dict[str, Any]:
        """``model`` and ``device`` as the manifest shows them, ``weights_seed``, and ``rates`` with the fit they come from."""
        try:
            bytes_per_token: int | None = self.bytes_per_token
        except UsageError:  # a size in tokens needs none
            bytes_per_token = None
        return {
            "model": {"name": self._config.model, "vocab": self.vocab, "bytes_per_token": bytes_per_token},
            "device": {"device": None},
            "weights_seed": None,
            "rates": self._described_rates,
        }

    def check(self, name: str, prompt_tokens: int, output_tokens: int) -> None:
        """Refuse a request that could never run; ``UsageError``: empty, or longer than the pool or the model allows, with the sizes."""
        self._longest = max(self._longest, prompt_tokens + output_tokens)
        size = f"{name}: {prompt_tokens:,} prompt and {output_tokens:,} output tokens"
        if not prompt_tokens:
            raise UsageError(f"{name}: the prompt holds no token; make it longer")
        if self._max_tokens is not None and prompt_tokens + output_tokens > self._max_tokens:
            limit = f"{self._max_tokens:,} tokens that model {self._config.model} was made for"
            raise UsageError(f"{size} exceed the {limit}; {self._config.shorter}")
        block = self.capacity.block_size
        kept, reserved = prompt_tokens, 0  # of whole documents, whose output takes no room
        if self._profile.device is not None:
            kept, reserved = prompt_tokens + output_tokens - 1, self._profile.device.reserved_blocks
        needed = (ceil_div(kept, block) + reserved) * block
        if needed > self.capacity.tokens:
            raise UsageError(
                f"{size} need a pool of {needed:,} tokens, this one has {self.capacity.tokens:,}; --kv-tokens {needed} holds it"
            )

    def check_memory(self, arm: ArmSetup) -> None:
        """Nothing is kept but the ids of blocks and chunks."""

    def warm_up(self, prompt_tokens: int) -> None:
        """There is nothing to warm up."""

    def start(self, arm: ArmSetup, repeat: int, clock: Clock) -> SimulatorRunner:
        """A cold simulator, with a clock of its own."""
        pool = self.capacity
        capacity = CacheSizes(pool.tokens, pool.block_size, arm.host_tokens, self._config.tier_chunk_tokens)
        profile = self._profile.under(arm.device_policy, arm.host_policy)
        return SimulatorRunner(Predictor(profile, capacity, self._rates))

    def close(self) -> None:
        """Nothing is held."""


def _find_rates(config: SimulatorOptions) -> tuple[Rates | None, dict[str, Any] | None]:
    """The rates of a run, given or fitted, and what the manifest says of them; ``None`` where there are none.

    Raises ``UsageError``: the run to calibrate with tells no rate that an arm of this one needs.
    """
    given = Rates(config.prefill_rate, config.restore_rate, config.overhead_ms or 0.0)
    if config.calibrate is None:
        return (None, None) if given.prefill is None else (given, {**asdict(given), "fit": None})
    run = read_run(config.calibrate)
    rates, fitted = complete(given, config.overhead_ms, run, config.has_tier)
    return rates, describe_fit(run, fitted) | asdict(rates)
