"""HTTP that is not timed: health, metrics, status, resets. Every failure is one line."""

from __future__ import annotations

from typing import Any

import httpx

from kvbench.errors import RunFailed


def open_client(timeout_s: float = 10.0) -> httpx.Client:
    """A client that goes straight to the server, whatever proxies the environment names."""
    return httpx.Client(timeout=timeout_s, trust_env=False)


def call(client: httpx.Client, method: str, url: str) -> httpx.Response:
    """A successful answer.

    Raises:
        RunFailed: there is none; says which URL, and why.
    """
    try:
        answer = client.request(method, url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise RunFailed(f"{url}: no answer ({str(error) or type(error).__name__})") from None
    if not answer.is_success:
        raise RunFailed(f"{url}: answered {answer.status_code} {answer.reason_phrase}")
    return answer


def get_object(client: httpx.Client, url: str) -> dict[str, Any]:
    """The JSON object at a URL; fails as :func:`call` does, and where it is no object."""
    return _object(call(client, "GET", url), url)


def post_object(client: httpx.Client, url: str) -> dict[str, Any]:
    """The JSON object that an empty POST is answered with; fails as :func:`call` does, and where it is no object."""
    return _object(call(client, "POST", url), url)


def _object(answer: httpx.Response, url: str) -> dict[str, Any]:
    try:
        content = answer.json()
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise RunFailed(f"{url}: answered something that is no JSON object")
    return content
