"""What the engine refuses at submit: requests that could never run, with the sizes and the option to change."""

from __future__ import annotations

from kvbench.errors import UsageError
from kvbench.models.units import ceil_div
from kvbench.runners.engine.engine_config import EngineConfig
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.scheduling.allocation import on_demand


def check_request(name: str, prompt_tokens: int, max_tokens: int, model: Model, config: EngineConfig, shorter: str = "shorten it") -> None:
    """Refuse what could never run, before anything is measured.

    ``shorter``: what to do about one that is too long. Raises ``UsageError``: the prompt is empty, or the request is longer than the pool
    or the model allows, with the sizes.
    """
    size = f"{name}: {prompt_tokens:,} prompt and {max_tokens:,} output tokens"
    if not prompt_tokens:
        raise UsageError(f"{name}: the prompt holds no token; make it longer")
    if prompt_tokens + max_tokens > model.max_tokens:
        raise UsageError(f"{size} exceed the {model.max_tokens:,} tokens that model {model.name} was made for; {shorter}")
    longest = prompt_tokens + max_tokens - 1  # the last output token never becomes an input
    if config.reserve_tokens is not None and longest > config.reserve_tokens:
        raise UsageError(f"{size} exceed the {config.reserve_tokens:,} that are reserved for each request; raise --max-length")
    blocks = ceil_div(max(longest, config.reserve_tokens or 0), config.block_size)
    if blocks > config.num_blocks:
        raise UsageError(
            f"{size} need {blocks:,} blocks of {config.block_size}, the pool has {config.num_blocks:,} "
            f"({config.num_blocks * config.block_size:,} tokens); --kv-tokens {blocks * config.block_size} holds it, or {shorter}"
        )


def check_fork(name: str, config: EngineConfig) -> None:
    """Refuse forks where room is reserved: the children's would not be; raises ``UsageError`` if the allocation reserves."""
    if config.allocation is not on_demand or config.reserve_tokens is not None:
        raise UsageError(f"{name}: a reservation keeps room for one output; several samples need room taken on demand")


def check_beams(name: str, beams: int, vocab: int) -> None:
    """Refuse a beam search that could not fill its beams.

    Raises ``UsageError``: there are no beams, or more than there are tokens to begin with.
    """
    if beams < 1:
        raise UsageError(f"{name}: {beams} beams were asked for; ask for 1 or more")
    if beams > vocab:
        raise UsageError(f"{name}: {beams:,} beams begin with a token each, and the vocabulary has {vocab:,}; lower --beams")
