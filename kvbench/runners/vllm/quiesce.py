"""Counters that stand still: read once a server has counted what it finished, and its tier has stored what it was given."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import httpx

from kvbench.errors import RunFailed
from kvbench.runners.base import Request
from kvbench.runners.servers.counters import Scrape, scrape
from kvbench.runners.servers.kinds.kind import ServerKind
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.simulator.prefixes import Prefixes
from kvbench.runners.vllm.lmcache import LMCACHE, await_stores

IDLE_S = 5.0
"""vLLM counts a request before its last token leaves; a server that still has requests after this long serves others as well."""

POLL_S = 0.005

LOOKS, AGAIN_S = 3, 0.1
"""How often the counters are asked for until that has failed for good; and the first pause between, each next one twice as long."""


class Quiesce:
    """Reads one server, and the LMCache server beside it, if there is one."""

    def __init__(
        self,
        http: httpx.Client,
        url: str,
        lmcache_url: str | None,
        chunk_tokens: int,
        kept_chunks: int | None,
        patience_s: float,
        kind: ServerKind = KIND,
    ) -> None:
        """Reads nothing yet.

        Args:
            kept_chunks: as many chunks the tier keeps without evicting any; ``None``: not known, so none is waited for by number.
            patience_s: how long stores may take.
            kind: of the server.
        """
        self.kind = kind
        self._http, self._url, self._lmcache_url = http, url, lmcache_url
        self._kept_chunks, self._patience_s = kept_chunks, patience_s
        self._room, self._looks = kept_chunks, LOOKS
        self._prefixes, self._chunks = Prefixes(chunk_tokens), set[int]()
        self._is_ours = True
        self._faults: list[str] = []

    def read(self) -> Scrape:
        """The counters as they are, those of LMCache among them."""
        return self._again(self._read)

    def _again(self, look: Callable[[], Scrape]) -> Scrape:
        """What a look gives; one that fails is repeated, unless the one before failed for good."""
        for number in range(self._looks - 1):
            try:
                return look()
            except RunFailed:
                time.sleep(AGAIN_S * 2**number)
        self._looks = 1  # a server that does not answer would be waited for again and again
        reading = look()
        self._looks = LOOKS
        return reading

    def _read(self) -> Scrape:
        reading = self._scrape()
        if self._lmcache_url is not None:
            reading.counters.update(scrape(self._http, self._lmcache_url, LMCACHE).counters)
        return reading

    def _scrape(self) -> Scrape:
        return self.kind.scrape(self._http, self._url)

    def after(self, *requests: Request) -> Scrape:
        """The counters when everything that these requests left has been counted and stored. Nothing else may be in flight."""
        if not self._await_idle(partial(self._again, self._scrape)):
            self._is_ours = False  # waiting again would only take the time again
            self._faults.append(f"the server still had requests {IDLE_S:g} s after ours had ended: others use it too")
        if self._lmcache_url is not None or self._room is not None:
            for request in requests:
                self._chunks.update(self._prefixes.of(request.prompt))
        if self._lmcache_url is not None:
            self._await_stores(self._lmcache_url)
        return self.read()

    @property
    def overflows(self) -> bool:
        """Whether more was sent than the tier keeps, as far as its size is known: then it may give nothing."""
        return self._room is not None and len(self._chunks) > self._room

    def after_failure(self) -> Scrape | None:
        """The counters when the server has let go of a request that failed, or has had its time to. What it stored is not awaited: nobody
        knows how much that is. ``None`` where the server does not answer, which is for whoever asks it next to say.
        """
        try:
            self._await_idle(self._scrape)
            return self._read()
        except RunFailed:
            return None

    def take_faults(self) -> list[str]:
        """What did not settle, in words; forgets it."""
        faults, self._faults = self._faults, []
        return faults

    def _await_idle(self, look: Callable[[], Scrape]) -> bool:
        """Until the server says that no request runs or waits, or does not say it; whether that came in time. Asks no server of others."""
        deadline = time.monotonic() + IDLE_S
        while self._is_ours and time.monotonic() < deadline:
            gauges = look().gauges
            if not gauges.get("running", 0) and not gauges.get("waiting", 0):
                return True
            time.sleep(POLL_S)
        return not self._is_ours

    def _await_stores(self, lmcache_url: str) -> None:
        wanted = len(self._chunks)
        known = self._kept_chunks is not None and wanted <= self._kept_chunks
        try:
            await_stores(self._http, lmcache_url, self._patience_s, wanted if known else None)
        except RunFailed as error:
            self._faults.append(str(error))
            self._kept_chunks = None  # it has lost some, and asking for them again would only take the time again
