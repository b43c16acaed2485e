"""The engine as a runner: sends the requests of a pass at the configured concurrency and writes down what each went through."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from kvbench.errors import OutOfMemory
from kvbench.records import PassTotals, RequestRecord
from kvbench.runners.base import Clock, Request
from kvbench.runners.engine import sequence as engine_sequence
from kvbench.runners.engine.engine import Engine


class EngineRunner:
    """One cold engine, driven in a closed loop: a request is sent when one before it has ended."""

    def __init__(self, engine: Engine, clock: Clock, concurrency: int) -> None:
        self._engine: Engine | None = engine
        self._clock = clock
        self._concurrency = concurrency

    def run_pass(self, requests: Sequence[Request], on_end: Callable[[RequestRecord], None]) -> PassTotals:
        """Run all requests; see :class:`kvbench.runners.base.Runner`.

        Raises:
            OutOfMemory: the machine or the device ran out while computing.
        """
        engine = self._require_engine()
        engine.pool.peak_used = engine.pool.used_blocks
        gc.collect()  # now, rather than inside a request
        before = engine.snapshot()
        queue = deque(requests)
        in_flight: dict[engine_sequence.Sequence, tuple[Request, float]] = {}
        with memory_errors():
            while queue or in_flight:
                while queue and len(in_flight) < self._concurrency:
                    request = queue.popleft()
                    sent = self._clock()
                    sequence = engine.submit(request.place.request_id, list(request.prompt), request.output_tokens)
                    in_flight[sequence] = (request, sent)
                for sequence in engine.step():
                    request, sent = in_flight.pop(sequence)
                    on_end(self._record(request, sequence, sent))
            engine.drain()
        after = engine.snapshot()
        grown = {name: after[name] - before[name] for name in ("evicted_tokens", "stored_tokens", "loaded_tokens")}
        return PassTotals(before, after, engine.pool.peak_used * engine.config.block_size, **grown)

    def take_events(self) -> list[dict[str, object]]:
        """The engine's events since the last call."""
        engine = self._require_engine()
        events, engine.events = engine.events, []
        return events

    def close(self) -> None:
        """Let go of the pool and the tier, so that the next engine finds their memory free."""
        self._engine = None
        gc.collect()

    def _require_engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the runner is closed")
        return self._engine

    def _record(self, request: Request, sequence: engine_sequence.Sequence, sent: float) -> RequestRecord:
        alone = self._concurrency == 1  # otherwise a step's time is shared with other requests
        device, host = sequence.device_hit, sequence.host_hit
        known = device is not None and host is not None
        return RequestRecord(
            place=request.place,
            prompt_tokens=sequence.prompt_tokens,
            prompt_tokens_sent=len(request.prompt),
            output_tokens=sequence.output_tokens,
            cached_tokens_device=device,
            cached_tokens_host=host,
            computed_tokens=sequence.prompt_tokens - device - host if device is not None and host is not None else None,
            attribution="engine" if known else None,
            restore_ms=sequence.restore_s * 1e3,
            compute_ms=sequence.compute_s * 1e3 if alone else None,
            scheduled_s=sent,
            sent_s=sent,
            first_token_s=sequence.token_times[0],
            last_token_s=sequence.token_times[-1],
            end_s=self._clock(),
            token_times_s=sequence.token_times,
            chunk_tokens=[1] * sequence.output_tokens,
            preemptions=sequence.preemptions,
            stalls=sequence.stalls,
        )


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
