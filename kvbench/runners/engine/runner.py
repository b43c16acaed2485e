"""The engine as a runner: sends the requests of a pass at their pace and writes down what each went through."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from kvbench.errors import OutOfMemory
from kvbench.runners.base import Clock, ClosedLoop, Pace, Request, RequestSource, Runner
from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.model.sampling import Sampling
from kvbench.runners.engine.scheduling import sequence as engine_sequence
from kvbench.runners.send_queue import SendQueue
from kvbench.runs.records import PassTotals, RequestRecord, digest


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request in flight, when it was due and was sent, and its answers."""

    request: Request
    due_s: float
    sent_s: float
    answers: list[engine_sequence.Sequence]


class EngineRunner(Runner):
    """One cold engine, driven by the thread that calls it: between two steps it sends what is due."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine: Engine | None = engine
        self._clock = clock

    def run_pass(self, source: RequestSource, pace: Pace, on_end: Callable[[RequestRecord], None]) -> PassTotals:
        """See :class:`kvbench.runners.base.Runner`; ``OutOfMemory``: the machine or the device ran out while computing."""
        engine = self._require_engine()
        engine.pool.peak_used, engine.scheduler.peak_running = engine.pool.used_blocks, 0
        gc.collect()  # now, rather than inside a request
        before = engine.snapshot()
        alone = pace == ClosedLoop(1)  # otherwise a step's time is shared with other requests
        queue = SendQueue(source, pace, self._clock)
        in_flight: dict[engine_sequence.Sequence, _Sent] = {}
        with memory_errors():
            while queue or in_flight:
                if not in_flight:
                    queue.wait()
                for request, due in queue.due():
                    sent = _Sent(request, due, self._clock(), _submit(engine, request))
                    in_flight |= dict.fromkeys(sent.answers, sent)
                for sequence in engine.step():
                    sent = in_flight.pop(sequence)
                    on_end(self._record(sent, sequence, alone))
                    if not in_flight.keys() & sent.answers:
                        queue.ended(sent.request, _output(sent.answers[0]), sequence.token_times[-1])
            engine.drain()
        after = engine.snapshot()
        evicted, stored, loaded = (after[name] - before[name] for name in ("evicted_tokens", "stored_tokens", "loaded_tokens"))
        peak_tokens, peak_running = engine.pool.peak_used * engine.config.block_size, engine.scheduler.peak_running
        return PassTotals(before, after, peak_tokens, evicted, stored, loaded, peak_running=peak_running)

    def take_events(self) -> list[dict[str, object]]:
        """The engine's events since the last call."""
        return self._require_engine().take_events()

    def close(self) -> None:
        """Let go of the pool and the tier, so that the next engine finds their memory free."""
        self._engine = None
        gc.collect()

    def _require_engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the runner is closed")
        return self._engine

    def _record(self, sent: _Sent, sequence: engine_sequence.Sequence, alone: bool) -> RequestRecord:
        device, host = sequence.device_hit, sequence.host_hit
        computed = None if device is None or host is None else sequence.prompt_tokens - device - host
        return RequestRecord(
            key=replace(sent.request.key, request_id=sequence.request_id),
            prompt_tokens=sequence.prompt_tokens,
            prompt_tokens_sent=len(sent.request.prompt),
            output_tokens=sequence.output_tokens,
            cached_tokens_device=device,
            cached_tokens_host=host,
            computed_tokens=computed,
            attribution=None if computed is None else "engine",
            restore_ms=sequence.restore_s * 1e3,
            compute_ms=sequence.compute_s * 1e3 if alone else None,
            scheduled_s=sent.due_s,
            sent_s=sent.sent_s,
            first_token_s=sequence.token_times[0],
            last_token_s=sequence.token_times[-1],
            end_s=self._clock(),
            token_times_s=sequence.token_times,
            chunk_tokens=[1] * sequence.output_tokens,
            preemptions=sequence.preemptions,
            stalls=sequence.stalls,
            output_digest=digest(_output(sequence)),
        )


def _output(sequence: engine_sequence.Sequence) -> list[int]:
    """The token ids of an answer."""
    return sequence.tokens[sequence.prompt_tokens :]


def _submit(engine: Engine, request: Request) -> list[engine_sequence.Sequence]:
    """Queue a request; returns what gives its answers."""
    asked = (request.key.request_id, list(request.prompt), request.output_tokens)
    sampling = Sampling(request.temperature, request.seed)
    if request.beams:
        return engine.submit_beams(*asked, request.beams).sequences
    if request.samples > 1:
        return engine.submit_samples(*asked, [sampling.child(number) for number in range(request.samples)])
    return [engine.submit(*asked, sampling)]


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn torch's ways of saying "no memory left" into one line."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise OutOfMemory(_ADVICE) from None
    except RuntimeError as error:
        if "can't allocate memory" in str(error) or "not enough memory" in str(error):
            raise OutOfMemory(_ADVICE) from None
        raise


_ADVICE = "out of memory; lower --kv-tokens, --host-gib, --max-batch-tokens or --docs, or name a smaller --model"
