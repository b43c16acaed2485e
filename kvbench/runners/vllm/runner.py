"""A vLLM server as a runner: sends a pass through the timed client, reads the counters around it, and awaits the stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from kvbench.errors import RunFailed
from kvbench.runners.base import ClosedLoop, Pace, Request, RequestSource, Runner
from kvbench.runners.http.client import Client
from kvbench.runners.http.exchange import Exchange
from kvbench.runners.servers.counters import Scrape, difference
from kvbench.runners.servers.kinds.kind import TokensByTier
from kvbench.runners.vllm.arm_servers import ArmServers
from kvbench.runners.vllm.quiesce import Quiesce
from kvbench.runs.records import PassTotals, RequestRecord, digest

NOTICEABLE_LAG_S = 0.001

DEATH_S = 2.0
"""From the last answer of a server that dies to its end."""


class VllmRunner(Runner):
    """One server, cold when it was given, until it is closed."""

    def __init__(
        self,
        client: Client,
        quiesce: Quiesce,
        has_tier: bool,
        described: dict[str, Any],
        servers: ArmServers | None,
        owned: ExitStack | None = None,
        has_second: bool = False,
    ) -> None:
        """Take over a server that is ready.

        Args:
            quiesce: reads the server's counters when they stand still.
            has_tier: whether there is a tier beside the device pool.
            described: for the manifest.
            servers: which tell why they are dead, or their tier does not work; ``None``: the server is not ours.
            owned: closed with the runner.
            has_second: whether what the tier evicts is kept behind it.
        """
        self._client, self._quiesce, self._has_tier = client, quiesce, has_tier
        self._described, self._servers = described, servers
        self._passes, self._has_second = 0, has_second
        self._owned = owned or ExitStack()
        self._was_read, self._unread = False, list[str]()

    def describe(self) -> dict[str, Any]:
        """The servers' command lines and environments, secrets masked."""
        return self._described

    def run_pass(self, source: RequestSource, pace: Pace, on_end: Callable[[RequestRecord], None]) -> PassTotals:
        """Run all requests; see :class:`kvbench.runners.base.Runner`.

        At concurrency 1 the counters are read, and the stores awaited, between one request and the next, so that each is known by tier.
        Above it only the pass is. What this takes in between is told (``quiesce_s``), so that it is no part of the pass's time.

        Raises:
            RunFailed: the server died, or the run was given up because requests kept failing. Their records were handed over.
        """
        try:
            return self._run_pass(source, pace, on_end)
        except RunFailed as error:
            raise RunFailed(f"given up: {self._await_death() or error}") from None

    def _run_pass(self, source: RequestSource, pace: Pace, on_end: Callable[[RequestRecord], None]) -> PassTotals:
        before = last = self._look(self._quiesce.read)
        alone = pace == ClosedLoop(1)  # then the client sends no request before this has returned for the one before it
        answered, failed = list[Request](), False
        own_s, pending_s = 0.0, 0.0  # what came before a later request, and what came after the last one so far
        pauses = False  # then some of it may have been waited anyway

        def ended(request: Request, exchange: Exchange) -> None:
            nonlocal last, failed, own_s, pending_s, pauses
            failed |= exchange.error is not None
            own_s += pending_s
            tokens, start_s = None, self._client.clock()
            try:
                if exchange.error is None:
                    answered.append(request)
                    if alone:
                        after = self._look(partial(self._quiesce.after, request))
                        tokens, last = self._by_counters(last, after, request, exchange), after
                elif alone and exchange.sent_s is not None:
                    reading = self._quiesce.after_failure()
                    if reading is None and exchange.error.kind == "timeout":  # each further request would wait as long for nothing
                        raise RunFailed(f"{exchange.error.message}, and the server does not say what it counted either: it hangs")
                    last = reading or last
            except BaseException:  # the request has ended, whatever keeps its counters from standing still
                on_end(self._record(request, exchange))
                raise
            pending_s = self._client.clock() - start_s
            pauses |= alone and any(follow.pause_s > 0 for follow in source.after(request, exchange.token_ids))
            on_end(self._record(request, exchange, tokens))

        load = self._client.run(source, pace, ended, *([] if self._servers is None else [self._servers.why_dead]))
        if load.gave_up is not None:
            raise RunFailed(load.gave_up)
        after = last if alone else self._look(partial(self._quiesce.after, *answered))
        return self._totals(before, after, load.lags_s, failed, (None if pauses else own_s) if alone else 0.0)

    def close(self) -> None:
        """Stop what was started."""
        self._owned.close()

    def _record(self, request: Request, exchange: Exchange, tokens: TokensByTier | None = None) -> RequestRecord:
        """By the counters, or by the usage, which says how much was cached, but not where; without a tier it was on the device."""
        prompt, cached = exchange.prompt_tokens, exchange.cached_tokens
        device, host, computed, by = None, None, None, None
        if tokens is not None:
            device, host, computed, by = tokens.device, tokens.host, tokens.computed, "counters"
        elif prompt is not None and cached is not None:
            device, host = (None, None) if self._has_tier else (cached, 0)
            computed, by = prompt - cached, "usage"
        return RequestRecord(
            key=request.key,
            prompt_tokens=prompt,
            prompt_tokens_sent=len(request.prompt),
            output_tokens=exchange.output_tokens,
            cached_tokens_device=device,
            cached_tokens_host=host,
            computed_tokens=computed,
            attribution=by,
            restore_ms=None,
            compute_ms=None,
            scheduled_s=exchange.scheduled_s,
            sent_s=exchange.sent_s,
            first_token_s=exchange.first_token_s,
            last_token_s=exchange.last_token_s,
            end_s=exchange.end_s,
            token_times_s=exchange.token_times_s,
            chunk_tokens=exchange.chunk_tokens,
            preemptions=None,
            error=exchange.error,
            output_digest=None if exchange.token_ids is None else digest(exchange.token_ids),
        )

    def _look(self, at: Callable[[], Scrape]) -> Scrape | None:
        """The counters; ``None`` where they cannot be read, which is noted. ``RunFailed``: they never could, or the server is dead."""
        try:
            reading = at()
        except RunFailed as error:
            if not self._was_read or (self._servers is not None and self._servers.why_dead() is not None):
                raise
            self._unread.append(str(error))
            return None
        self._was_read = True
        return reading

    def _await_death(self) -> str | None:
        """Why the server is dead; one that has just stopped to answer is given a moment to end, and to say it in its log."""
        if self._servers is None:
            return None
        deadline = time.monotonic() + DEATH_S
        while (reason := self._servers.why_dead()) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return reason

    def _faults(self, host: int | None) -> list[str]:
        """What did not settle; and, once there was something to give, what the logs say of a tier that gave nothing.

        Unless it is too small to: its server complains then, too, and that is what was asked for.
        """
        silent = self._has_tier and self._passes > 0 and host == 0 and (self._has_second or not self._quiesce.overflows)
        self._passes += 1
        trouble = self._servers.tier_trouble() if silent and self._servers is not None else None
        return self._quiesce.take_faults() + ([] if trouble is None else [f"the tier gave nothing, and a server's log says: {trouble}"])

    def _by_counters(self, before: Scrape | None, after: Scrape | None, request: Request, exchange: Exchange) -> TokensByTier | None:
        """What one request alone made the counters grow by; ``None`` where something else did too, they do not say, or are contradicted."""
        if before is None or after is None:
            return None
        grown, kind = difference(before.counters, after.counters), self._quiesce.kind
        tokens = kind.tokens_by_tier(grown, self._has_tier)
        if not kind.was_alone(grown, len(request.prompt)) or tokens is None or kind.contradiction(tokens, grown) is not None:
            return None
        return tokens if exchange.cached_tokens in (None, tokens.device + tokens.host) else None

    def _totals(
        self, before: Scrape | None, after: Scrape | None, lags_s: Sequence[float], failed: bool, own_s: float | None
    ) -> PassTotals:
        """What the pass made the counters grow by. One that ``failed`` in part may have counts of half a request, which is no fault."""
        after = None if before is None else after  # readers take a counter that was not there before for 0
        grown = {} if before is None or after is None else difference(before.counters, after.counters)
        kind, (unread, self._unread) = self._quiesce.kind, (self._unread, [])
        tokens, host = kind.tokens_by_tier(grown, self._has_tier), grown.get("external_hits")
        wrong = None if tokens is None else kind.contradiction(tokens, grown)
        known = tokens if wrong is None else None
        return PassTotals(
            counters_before=_with_start(before),
            counters_after=_with_start(after),
            peak_pool_tokens=None,
            evicted_tokens=None,
            stored_tokens=None,
            loaded_tokens=host if self._has_tier and wrong is None else None,
            cached_tokens_device=known.device if known else None,
            cached_tokens_host=known.host if known else None,
            computed_tokens=known.computed if known else None,
            client_lags_ms=[round(lag * 1e3, 2) for lag in lags_s if lag >= NOTICEABLE_LAG_S],
            faults=[*self._faults(host), *([] if wrong is None or failed else [wrong])],
            quiesce_s=own_s,
            counters_unread=unread,
        )


def _with_start(reading: Scrape | None) -> dict[str, int]:
    """The counters, and when the server's process started: one that changes is another server. Empty where they were not read."""
    if reading is None:
        return {}
    return reading.counters | ({} if reading.started is None else {"server_started_ms": int(reading.started * 1e3)})
