"""What the fake server is to do: times, the shape of its stream, faults, and what it says of its caches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MODEL = "fake"
"""What the server calls its model."""

FAULTS = {
    "status": "answer with ``fault_status`` and an error in JSON, as vLLM does",
    "error": "HTTP 200, then after N tokens an event with an error, then [DONE], as vLLM does",
    "close": "close the connection after N tokens",
    "reset": "break the connection (RST) after N tokens",
    "garbage": "after N tokens an event that is not JSON",
    "truncate": "after N tokens an event whose JSON stops half-way",
    "cut": "after N tokens end the answer, as HTTP goes, within an event",
    "end": "after N tokens end the answer, as HTTP goes, without [DONE]",
    "http": "answer with something that is not HTTP",
    "stall": "say nothing more after N tokens, and keep the connection open",
    "length": "send N tokens, and call that the end",
    "die": "the server dies after N tokens: all its connections break, and nobody listens any more",
}
"""Kinds of fault, and what each does; N is ``fault_after``."""


def _says(default: Any, meaning: str) -> Any:
    """A field that explains itself on the command line."""
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True, slots=True)
class Script:
    """One way to behave. The tokens of an answer are ``0, 1, 2, ...``, as many as asked for. Times are in seconds."""

    first_token_s: float = _says(0.0, "From the arrival of the whole request to the first write with a token.")
    gap_s: float = _says(0.0, "Between writes; without a gap everything goes out in one write.")
    ending_s: float = _says(0.0, "From the last token to the usage and [DONE].")
    chunk_tokens: int = _says(1, "Tokens in a chunk, which is one event.")
    write_chunks: int = _says(1, "Events in one write.")
    pieces: int = _says(1, "Pieces into which each write is cut, a millisecond apart.")
    keepalives: bool = _says(False, "Before the first token an event without data, a ping, and a comment, as gateways send.")
    usage_choices: bool = _says(True, "Whether the last usage has a list of choices, an empty one.")
    refuses: str = _says("", "Fields that make a request refused, separated by commas, as a strict gateway does.")
    stops_after: int | None = _says(None, "The end-of-text token comes after so many, where it is not ignored.")
    padding_bytes: int = _says(0, "Filler in each event, for lines longer than a reader expects.")
    empty_first: bool = _says(False, "A first chunk without a token, at once.")
    role_chunk: bool = _says(False, "A first chunk with a role and no token, at once; the stream is a chat's.")
    reasoning_tokens: int = _says(0, "So many tokens at the head are reasoning; the stream is a chat's.")
    textless: bool = _says(False, "Tokens without text, as when each is a part of a character.")
    counts_chunks: bool = _says(True, "Whether it knows stream_options.continuous_usage_stats.")
    knows_ids: bool = _says(True, "Whether it knows return_token_ids.")
    usage: bool = _says(True, "Whether there is a last usage chunk for those who ask for it.")
    usage_off_by: int = _says(0, "What the last usage counts too many.")
    says_cached: bool = _says(True, "Whether that usage says how many prompt tokens were cached.")
    done: bool = _says(True, "Whether [DONE] ends the stream.")
    keep_alive: bool = _says(True, "Whether connections stay open; else each answer says that it is the last.")
    close_idle_s: float | None = _says(None, "A connection is closed so long after an answer, without a word in advance.")
    api_key: str = _says("", "What /v1 asks for, as vLLM started with --api-key.")
    max_model_len: int = _says(131072, "Tokens of a prompt and its output together; a longer prompt is refused, a longer output is cut.")
    vocabulary: int | None = _says(None, "Size of the vocabulary; a prompt with a token id from this number on is refused.")
    fault: str = _says("", "What goes wrong, if anything does.")
    fault_after: int = _says(0, "Tokens before the fault.")
    fault_every: int = _says(1, "Only every so-manyth request has the fault.")
    fault_from: int = _says(1, "Only from the request of this number on.")
    fault_status: int = _says(500, 'HTTP status of the fault "status".')
    healthy: bool = _says(True, "What /health says: 200, or 503.")
    resets: bool = _says(True, "Whether /reset_prefix_cache does it; it answers 200 either way, as vLLM does.")
    pool_tokens: int | None = _says(None, "A device pool of this size, by the simulator's profile vllm; without it nothing is cached.")
    prefix_caching: bool = _says(True, "Whether anything is looked up in that pool; vLLM started with --no-enable-prefix-caching does not.")
    block_size: int = _says(16, "Tokens of a block of that pool.")
    host_tokens: int | None = _says(None, "A host tier of this size (LMCache) behind the pool.")
    tier_answers: bool = _says(True, "Whether anything is ever found in the host tier.")
    store_s: float = _says(0.0, "How long after a request LMCache's status still shows its chunks as being stored.")
    count_s: float = _says(0.0, "How long after a stream's end its request is still counted as running, and not as finished.")
    tier_lookups: int = _says(1, "How often a lookup in the host tier is counted, as if it had been retried.")
    hides: str = _says("", "Metrics whose names begin so, after vllm:, are not shown.")
    metrics_faults: int = _says(0, "So many looks at /metrics get HTTP 404.")
    metrics_fault_from: int = _says(1, "Only once so many completions were asked for.")
    foreign_tokens: int = _says(0, "Prompt tokens of somebody else's request, counted with each of ours.")
    preempt_every: int | None = _says(None, "Every so-manyth request counts a preemption.")
    restart_after: int | None = _says(None, "After so many requests the server starts anew, as far as /metrics tells.")

    def __post_init__(self) -> None:
        """Refuse a fault that there is none of."""
        if self.fault and self.fault not in FAULTS:
            raise ValueError(f"no fault {self.fault!r}; there are {', '.join(FAULTS)}")

    def strikes(self, number: int) -> str:
        """The fault that strikes the request of this number, counted from 1; or none."""
        return self.fault if number >= self.fault_from and number % self.fault_every == 0 else ""
