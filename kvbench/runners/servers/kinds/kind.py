"""What a kind of server is: names and a few functions. A module each, with a ``KIND``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx

from kvbench.config.secrets import mask_login
from kvbench.errors import RunFailed
from kvbench.registry.registry import Registry
from kvbench.runners.base import DeviceCapacity
from kvbench.runners.servers.counters import MetricNames, Scrape, scrape


@dataclass(frozen=True, slots=True)
class TokensByTier:
    """Prompt tokens by where they came from; ``computed`` is what the others leave, below 0 where a hit was counted twice."""

    device: int
    host: int
    computed: int


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What ``/version`` and ``/v1/models`` say; ``None`` is unknown."""

    name: str
    root: str | None
    """The folder or the hub's name that it was loaded from."""

    max_tokens: int | None
    """Longest prompt and output together."""

    version: str | None
    """Of the server."""


@dataclass(frozen=True, slots=True)
class ServerKind:
    """One kind of server, with OpenAI's endpoints and metrics in Prometheus' format.

    Attributes:
        name: one word.
        title: as messages have it.
        known: the version its names were read from and tested with; ``0.32`` for ``0.32.*``.
        metrics: what it calls what it counts.
        pool_metric: the metric that tells the size of its pool.
        served_model: asks what it serves. Raises ``RunFailed``.
        reset: empties its own caches, and sees that they are. Raises ``RunFailed``.
        tokens_by_tier: what counters that grew say of the prompts in between, on an arm with a tier or without; ``None``: nothing.
        contradiction: how these tokens contradict the other counters; ``None`` where they do not.
        was_alone: whether the counters grew by one request with a prompt of so many tokens, and by nothing else.
    """

    name: str
    title: str
    known: str
    metrics: MetricNames
    pool_metric: str
    served_model: Callable[[httpx.Client, str], ServedModel]
    reset: Callable[[httpx.Client, str], None]
    tokens_by_tier: Callable[[Mapping[str, int], bool], TokensByTier | None]
    contradiction: Callable[[TokensByTier, Mapping[str, int]], str | None]
    was_alone: Callable[[Mapping[str, int], int], bool]

    def is_known(self, version: str | None) -> bool:
        """Whether a server of this version is the one that all this describes."""
        return (version or "").startswith(f"{self.known}.")

    def scrape(self, client: httpx.Client, url: str) -> Scrape:
        """Read the counters of the server there; raises ``RunFailed``."""
        return scrape(client, url, self.metrics)

    def read_pool(self, http: httpx.Client, url: str) -> DeviceCapacity:
        """The pool that a server reports; ``RunFailed`` where it does not say."""
        found = self.scrape(http, url).capacity
        if found is None:
            place = f"{mask_login(url)}/metrics"
            raise RunFailed(f"{place} does not tell the size of the pool ({self.pool_metric}); is this a {self.title} server?")
        return found


KINDS: Registry[ServerKind] = Registry("kvbench.runners.servers.kinds", "KIND")
"""Every kind by its name."""
