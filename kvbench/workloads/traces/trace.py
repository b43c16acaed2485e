"""A trace in memory: flat arrays of numbers, 8 bytes a block or 4 a token, and never its text; and its prompts as token ids."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import overload

from kvbench.errors import UsageError
from kvbench.workloads.draws import Draws
from kvbench.workloads.traces.reader import MOST_ID
from kvbench.workloads.traces.tracefile import TraceFile

UNKNOWN = -1
"""The output of a request that the trace does not say."""

KEPT_BLOCKS = 4096
"""Made blocks that are kept, as the ones used last are likely to come again."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of time. An array has a number for each, ``ids`` and ``starts`` excepted.

    ``block_tokens``: what an id stands for; ``None``: ids are tokens themselves. ``lines``: in the file. ``times_s``: on the trace's own
    clock; ``None``: it has none. ``output_tokens``: ``UNKNOWN`` where not said. ``ids``: of all requests; request ``i`` has those from
    ``starts[i]`` to ``starts[i + 1]``; a hash id below 0 is of tokens that the trace does not name. ``turns``: above 0, a request that
    comes after the one ahead of it. ``left_out``: requests that were larger than asked for.
    """

    name: str
    block_tokens: int | None
    lines: array[int]
    times_s: array[float] | None
    prompt_tokens: array[int]
    output_tokens: array[int]
    ids: array[int]
    starts: array[int]
    turns: array[int]
    left_out: int

    def __len__(self) -> int:
        return len(self.lines)

    def ids_of(self, index: int) -> memoryview[int]:
        """The ids of one request, not copied."""
        return memoryview(self.ids)[self.starts[index] : self.starts[index + 1]]


def load_trace(file: TraceFile, limit: int | None = None, max_prompt_tokens: int | None = None) -> Trace:
    """Read a trace as a stream.

    Args:
        limit: only so many requests of the file; lines behind them are not looked at.
        max_prompt_tokens: requests with longer prompts are left out.

    Raises:
        UsageError: a line is at fault, or no request is left.
    """
    lines, prompts, outputs, starts = array("q"), array("q"), array("q"), array("q", [0])
    times, turns, ids = array("d"), array("q"), array("i" if file.block_tokens is None else "q")
    left_out = 0
    for request in islice(file, limit):
        if max_prompt_tokens is not None and request.prompt_tokens > max_prompt_tokens:
            left_out += 1
            continue
        lines.append(request.line)
        prompts.append(request.prompt_tokens)
        outputs.append(UNKNOWN if request.output_tokens is None else request.output_tokens)
        if request.time_s is not None:
            times.append(request.time_s)
        ids.extend(request.ids)
        starts.append(len(ids))
        turns.append(request.turn)
    if not lines:
        if not left_out:
            raise UsageError(f"--trace {file.path}: the file holds no request")
        raise UsageError(f"--trace {file.path}: all {left_out:,} requests are above --max-prompt-tokens {max_prompt_tokens:,}; raise it")
    if file.has_times:
        file.check_pace(times)
    own_times = times if file.has_times else None
    return Trace(file.path.name, file.block_tokens, lines, own_times, prompts, outputs, ids, starts, turns, left_out)


MadeBlock = Callable[[int], list[int]]
"""From a hash id to the tokens of its block."""


class Prompts:
    """The prompts of a trace as token ids: the same for the same seed, trace and vocabulary."""

    def __init__(self, trace: Trace, seed: int, vocab: int) -> None:
        """Made ids are drawn from ``0 .. vocab - 1``."""
        self._trace = trace
        blocks = MadeBlocks(seed, trace.block_tokens or 1, vocab)
        self._block = lru_cache(KEPT_BLOCKS)(blocks.tokens)

    def __getitem__(self, index: int) -> Sequence[int]:
        """The prompt of one request; the tokens of a hashed one are made whenever it is gone through."""
        ids = self._trace.ids_of(index)
        return ids if self._trace.block_tokens is None else MadePrompt(self._block, ids, self._trace.prompt_tokens[index])


class MadeBlocks:
    """Blocks of random token ids, one for each hash id.

    The first tokens are the id's own digits in base ``vocab``, lowest first, so that different ids differ there, and small blocks of an
    engine are not equal by chance.
    """

    def __init__(self, seed: int, block_tokens: int, vocab: int) -> None:
        self._seed, self._size, self._vocab = seed, block_tokens, vocab
        self._offset = Draws(seed, "offset").integers(1, 0, vocab)[0]

    def tokens(self, hash_id: int) -> list[int]:
        """The block of an id; a part of one is its head."""
        own, rest, largest = [], hash_id, MOST_ID
        while largest:
            rest, digit = divmod(rest, self._vocab)
            own.append((digit + self._offset) % self._vocab)
            largest //= self._vocab
        drawn = Draws(self._seed, "block", hash_id).integers(max(self._size - len(own), 0), 0, self._vocab)
        return (own + drawn)[: self._size]


class MadePrompt(Sequence[int]):
    """A prompt that is made of blocks when it is gone through, and not kept."""

    def __init__(self, block: MadeBlock, ids: memoryview[int], length: int) -> None:
        self._block, self._ids, self._length = block, ids, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return islice(chain.from_iterable(map(self._block, self._ids)), self._length)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        return list(self)[place]
