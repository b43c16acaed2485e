"""What an endpoint is: one object that writes a request and reads an event of its answer. A module each, with an ``ENDPOINT``.

The stream's framing (server-sent events, ``[DONE]``), its times and its checks are the client's, whatever the endpoint.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from kvbench.errors import UsageError
from kvbench.registry.registry import Registry
from kvbench.runners.base import Request


class PromptDetails(msgspec.Struct, frozen=True):
    """Of the prompt's tokens those that were cached, wherever (vLLM: with ``--enable-prompt-tokens-details``)."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the server counts them; of the output, up to here. The names are OpenAI's."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens that were cached."""
        return None if self.prompt_tokens_details is None else self.prompt_tokens_details.cached_tokens


class Event(msgspec.Struct, frozen=True, gc=False):
    """What one event of an answer tells; ``None`` is what it does not say.

    ``adds``: it is a part of the answer, and not only about it. ``has_text``: text of any kind, and so at least one token.
    ``failure``: why the server gave the request up.
    """

    adds: bool = False
    has_text: bool = False
    token_ids: list[int] | None = None
    usage: Usage | None = None
    failure: str | None = None


class Endpoint(Protocol):
    """One way to ask a server for tokens. It keeps nothing between two calls."""

    name: str
    """One word."""

    path: str
    """Where requests go, from the server's address on: ``/v1/completions``."""

    def encode(self, request: Request, model: str, ids: bool, cache_salt: str | None) -> bytes:
        """The body that asks for a stream of exactly ``output_tokens`` tokens, and for counts of them.

        Args:
            model: as the server names it.
            ids: ask for the ids of the output, too.
            cache_salt: what another salt left in any cache is not found; ``None``: no salt.
        """

    def read(self, event: bytes) -> Event:
        """The data of one event. Called between two reads of sockets: what it takes, others' stamps may wait.

        Raises:
            ValueError: it is not one of this endpoint's.
        """

    def read_error(self, body: bytes) -> str:
        """The server's own words, in one line, in the body of an answer that is no stream."""


ENDPOINTS: Registry[Endpoint] = Registry("kvbench.runners.http.endpoints", "ENDPOINT")
"""Every endpoint by its name."""


def find_endpoint(name: str) -> Endpoint:
    """The endpoint of this name; ``UsageError`` where there is none."""
    known = ENDPOINTS.all()
    if name not in known:
        raise UsageError(f"--endpoint {name}: there is none of this name; there are {', '.join(sorted(known))}")
    return known[name]
