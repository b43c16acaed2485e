"""The simulator as a runner: writes down what each request would go through, on a clock that only predicted times move."""

from __future__ import annotations

from collections.abc import Callable

from kvbench.runners.base import Pace, Request, RequestSource, Runner
from kvbench.runners.simulator.prediction import Predictor
from kvbench.runners.simulator.simulator import TierTokens
from kvbench.runs.rates import Rates
from kvbench.runs.records import PassTotals, RequestRecord

COUNTERS = ("requests", "prompt_tokens", "device_hit_tokens", "host_hit_tokens", "computed_tokens")


class SimulatorRunner(Runner):
    """One cold simulator. Requests go one at a time, in the order of sending, and each has the machine for itself."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._now = 0.0
        """Seconds on the virtual clock, which stands still where no time is predicted."""
        self._counters = dict.fromkeys(COUNTERS, 0)

    def run_pass(self, source: RequestSource, pace: Pace, on_end: Callable[[RequestRecord], None]) -> PassTotals:
        """Predict all requests; see :class:`kvbench.runners.base.Runner`.

        When each is sent, :meth:`~kvbench.runners.simulator.prediction.Predictor.predict` says. What is not modelled, whatever the pace:
        waiting for another request, and output tokens, which take no time and have none.
        """
        before = dict(self._counters)
        prediction = self._predictor.predict(source, pace, self._now)
        rows = zip(prediction.requests, prediction.tokens, prediction.ttft_ms, prediction.due_s, strict=True)
        for request, tokens, ttft, due in rows:
            record = _record(request, tokens, ttft, due, prediction.rates)
            self._now = max(self._now, record.end_s)
            for name, count in zip(COUNTERS, (1, len(request.prompt), *tokens), strict=True):
                self._counters[name] += count
            on_end(record)
        loaded = self._counters["host_hit_tokens"] - before["host_hit_tokens"]
        return PassTotals(before, dict(self._counters), None, None, None, loaded)

    def close(self) -> None:
        """Nothing is held."""


def _record(request: Request, tokens: TierTokens, ttft_ms: float | None, due_s: float, rates: Rates | None) -> RequestRecord:
    """The record of a request: its tokens, and its times where there are rates."""
    first = None if ttft_ms is None else due_s + ttft_ms / 1e3
    return RequestRecord(
        key=request.key,
        prompt_tokens=len(request.prompt),
        prompt_tokens_sent=len(request.prompt),
        output_tokens=request.output_tokens,
        cached_tokens_device=tokens.device,
        cached_tokens_host=tokens.host,
        computed_tokens=tokens.computed,
        attribution="simulator",
        restore_ms=_time_ms(tokens.host, None if rates is None else rates.restore),
        compute_ms=_time_ms(tokens.computed, None if rates is None else rates.prefill),
        scheduled_s=due_s,
        sent_s=due_s,
        first_token_s=first,
        last_token_s=None,
        end_s=due_s if first is None else first,
        token_times_s=[],
        chunk_tokens=None,
        preemptions=None,
    )


def _time_ms(tokens: int, rate: float | None) -> float | None:
    return None if rate is None else tokens / rate * 1e3
