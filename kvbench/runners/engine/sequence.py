"""One request inside the engine: its tokens, how many of them have KV, and in which blocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvbench.records import Stall
from kvbench.runners.engine.key_chain import KeyChain


@dataclass(slots=True, eq=False)
class Sequence:
    """The state of a request; everything but its KV survives a preemption.

    ``tokens`` are the prompt and the output so far. ``computed`` of them have KV in ``block_table``'s blocks: token ``j`` in logical
    block ``j // B`` at offset ``j % B`` (source 003). The last output token has no KV until it is an input itself.
    """

    request_id: str
    tokens: list[int]
    prompt_tokens: int
    max_tokens: int
    block_keys: KeyChain
    chunk_keys: KeyChain
    block_table: list[int] = field(default_factory=list)
    computed: int = 0
    published: int = 0
    """Blocks at the head of ``block_table`` that were offered to the prefix cache."""

    device_hit: int | None = None
    host_hit: int | None = None
    """Prompt tokens found at the first admission; a later one, after a preemption, does not count as a hit."""

    restore_s: float = 0.0
    compute_s: float = 0.0
    token_times: list[float] = field(default_factory=list)
    preemptions: int = 0
    stalls: list[Stall] = field(default_factory=list)
    stalled: bool = False
    """Preempted since the last delivered token; the next one ends the stall."""
    stall_restore_s: float = 0.0
    stall_compute_s: float = 0.0

    @property
    def output_tokens(self) -> int:
        """Tokens delivered so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def finished(self) -> bool:
        """Whether every token asked for was delivered."""
        return self.output_tokens >= self.max_tokens

    def extend_keys(self) -> None:
        """Bring both key chains up to the tokens known."""
        self.block_keys.extend(self.tokens)
        self.chunk_keys.extend(self.tokens)
