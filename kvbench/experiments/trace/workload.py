"""Experiment ``trace``: requests as they were once asked, at their own times: what a tier is worth to real traffic."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

from kvbench.analysis.sizing import working_set_chunks
from kvbench.errors import UsageError
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.trace.options import TraceOptions
from kvbench.experiments.workload import Size, request_key
from kvbench.runners.base import FollowUp, OpenLoop, Pace, Request
from kvbench.workloads.arrivals import replayed
from kvbench.workloads.passes import Pass
from kvbench.workloads.prompt_text import PromptText
from kvbench.workloads.traces.blocks import Blocks, distinct_blocks
from kvbench.workloads.traces.trace import UNKNOWN, Prompts, Trace, load_trace
from kvbench.workloads.traces.tracefile import TraceFile

LONGEST_S = 7 * 24 * 3600
"""A replay that takes longer is a trace with its times in another unit."""


class Turns:
    """A :class:`~kvbench.runners.base.RequestSource` of sessions: a later turn is sent when the one ahead of it has ended."""

    needs_answers = False

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        self.first = [request for request in requests if not request.key.turn]

    @property
    def count(self) -> int:
        """All turns."""
        return len(self._requests)

    def after(self, request: Request, answer: Sequence[int] | None) -> Sequence[FollowUp]:
        """The next turn of its session, answered or not: its prompt holds the recorded answers."""
        following = self._requests[request.key.position + 1 : request.key.position + 2]
        return [FollowUp(later, 0.0) for later in following if later.key.turn]


@dataclass(frozen=True)
class TraceReplay:
    """The workload of one run: one pass over the trace. ``times_s`` from the first request on, ``None`` for a closed loop."""

    trace: Trace
    prompts: Prompts
    output_tokens: Sequence[int]
    times_s: Sequence[float] | None
    arms: ClassVar[None] = None

    @cached_property
    def passes(self) -> list[Pass]:
        """One; a prompt that comes again is the same document."""
        numbers: dict[tuple[int, bytes], int] = {}
        return [Pass("trace", 0, [numbers.setdefault(self._identity(index), len(numbers)) for index in range(len(self.trace))])]

    def requests(self, arm: str, repeat: int, pass_: Pass) -> list[Request] | Turns:
        """Every request of the trace, in order; their prompts are made when they are sent. A later turn comes after the one ahead of it."""
        turns = self.trace.turns if any(self.trace.turns) else None
        sessions = accumulate(turn == 0 for turn in self.trace.turns)
        requests = [
            Request(
                request_key(pass_, arm, repeat, position, *((None, None) if turns is None else (session - 1, turns[position]))),
                self.prompts[position],
                self.output_tokens[position],
            )
            for position, session in zip(range(len(pass_.doc_ids)), sessions, strict=True)
        ]
        return requests if turns is None else Turns(requests)

    def pace(self, pass_: Pass) -> Pace | None:
        """The trace's own times."""
        return None if self.times_s is None else OpenLoop(self.times_s)

    def sizes(self) -> list[Size]:
        """Of every request; a name says its line and what leaves it out."""
        return [
            Size(f"--trace {self.trace.name}, line {line} (--max-prompt-tokens leaves larger ones out)", prompt, output)
            for line, prompt, output in zip(self.trace.lines, self.trace.prompt_tokens, self.output_tokens, strict=True)
        ]

    def working_set_tokens(self) -> int:
        """Distinct prompt tokens, common heads counted once."""
        blocks = self._blocks
        return working_set_chunks(self._prompts(), 1) if blocks is None else int((blocks.ends - blocks.starts).sum())

    def working_set_chunks(self, chunk: int) -> int:
        """Room for every distinct prompt, and for what outputs may carry over a chunk's end."""
        blocks = self._blocks
        if blocks is None:
            distinct = working_set_chunks(self._prompts(), chunk)
        else:
            distinct = int((blocks.ends // chunk - blocks.starts // chunk).sum())
        pairs = zip(self.trace.prompt_tokens, self.output_tokens, strict=True)
        return distinct + sum((prompt + output - 1) // chunk - prompt // chunk for prompt, output in pairs)

    def describe(self) -> dict[str, Any]:
        """The file, its requests, how many were left out, tokens in sum, and the seconds the times span (null: a closed loop)."""
        return {
            "trace": self.trace.name,
            "requests_per_pass": len(self.trace),
            "left_out": self.trace.left_out,
            "prompt_tokens": sum(self.trace.prompt_tokens),
            "output_tokens": sum(self.output_tokens),
            "span_s": None if self.times_s is None else self.times_s[-1],
        }

    @cached_property
    def _blocks(self) -> Blocks | None:
        return None if self.trace.block_tokens is None else distinct_blocks(self.trace)

    def _prompts(self) -> list[Sequence[int]]:
        return [self.prompts[index] for index in range(len(self.trace))]

    def _identity(self, index: int) -> tuple[int, bytes]:
        """Equal where the whole prompt is: its length, and its ids or the last one, which stands for all before it."""
        ids = self.trace.ids_of(index)
        known = ids if self.trace.block_tokens is None else ids[-1:]
        return self.trace.prompt_tokens[index], hashlib.sha256(known).digest()


def make_workload(config: TraceOptions, facts: RunnerFacts) -> TraceReplay:
    """The trace's requests.

    Raises:
        UsageError: the file cannot be used, or its times do not go with the options.
    """
    assert config.trace is not None
    file = TraceFile(config.trace, PromptText(facts.tokenizer, "--trace"), config.trace_block_size, facts.vocab, config.trace_time_unit)
    trace = load_trace(file, config.limit, config.max_prompt_tokens)
    own = config.answer_tokens if config.overrides_output else None
    outputs = [max(own or (config.answer_tokens if said == UNKNOWN else said), 1) for said in trace.output_tokens]
    return TraceReplay(trace, Prompts(trace, config.seed, facts.vocab), outputs, _times(trace, config))


def _times(trace: Trace, config: TraceOptions) -> list[float] | None:
    """When the requests are sent, from the first one on; ``None``: the trace has no times, or another pace was asked for."""
    if not config.keeps_times:
        return None
    if trace.times_s is None:
        if config.speedup != 1:
            raise UsageError(f"--speedup: {config.trace} has no timestamps; leave it out, or give a --rate or --concurrency")
        return None
    times = replayed(trace.times_s, config.speedup)
    if times[-1] > LONGEST_S:
        raise UsageError(
            f"--trace {config.trace}: replaying its times takes {times[-1] / 86400:,.0f} days; say --trace-time-unit ms if they are "
            "not seconds, raise --speedup, cut it with --limit, or leave its times out with --concurrency"
        )
    return times
