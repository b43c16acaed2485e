"""HTTP that is not timed: health, metrics, status, resets. Every failure is one line."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import httpx

from kvbench.config.secrets import mask_login
from kvbench.errors import RunFailed


def open_client(headers: Mapping[str, str] | None = None) -> httpx.Client:
    """A client that goes straight to the server, whatever proxies the environment names. It trusts whom the timed one does."""
    return httpx.Client(headers=headers, timeout=10.0, trust_env=False, verify=ssl.create_default_context())


def call(client: httpx.Client, method: str, url: str) -> httpx.Response:
    """A successful answer; ``RunFailed`` where there is none: which URL, a login in it masked, and why."""
    shown = mask_login(url)
    try:
        answer = client.request(method, url)
    except httpx.InvalidURL:  # its text may be a part of the login
        raise RunFailed(f"{shown}: not the address of a server") from None
    except httpx.HTTPError as error:
        raise RunFailed(f"{shown}: no answer ({str(error) or type(error).__name__})") from None
    if not answer.is_success:
        raise RunFailed(f"{shown}: answered {answer.status_code} {answer.reason_phrase}{_remedy(answer)}")
    return answer


def call_for_object(client: httpx.Client, method: str, url: str) -> dict[str, Any]:
    """The JSON object that is answered; fails as :func:`call` does, and where it is no object."""
    answer = call(client, method, url)
    try:
        content = answer.json()
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise RunFailed(f"{mask_login(url)}: answered something that is no JSON object")
    return content


def _remedy(answer: httpx.Response) -> str:
    """What to try; empty where nothing is known. The query of another address may be secret."""
    if answer.status_code in (401, 403):
        return "; it wants to know who is asking: with --url or --from-server, --api-key-env NAME or --header NAME:VALUE"
    if answer.has_redirect_location:
        place = mask_login(answer.headers["location"].partition("?")[0])
        return f"; it sends on to {place}, where kvbench does not follow: give the address there"
    return ""
