"""Who is asking: the headers that go with every request to a server that was there before. No secret of theirs is shown."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from kvbench.errors import UsageError


def split_login(url: str) -> tuple[str, str]:
    """The address without its login, and the login as HTTP's basic authentication sends it; empty where there is none."""
    scheme, _, rest = url.partition("://")
    login, at, _ = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")
    user, _, password = login.partition(":")
    encoded = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode(errors="surrogateescape")).decode()
    return f"{scheme}://{rest.removeprefix(login + at)}", f"Basic {encoded}" if login else ""


def request_headers(words: Sequence[str], api_key_env: str | None) -> dict[str, str]:
    """The headers that ``--header`` and ``--api-key-env`` ask for.

    Raises:
        UsageError: one is no header, the variable is empty, or two say who is asking.
    """
    headers: dict[str, str] = {}
    for number, word in enumerate(words, start=1):
        name, colon, value = word.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header number {number}: NAME:VALUE is expected (its text is not shown, as it may be secret)")
        headers[name.strip()] = value.strip()
    if api_key_env is not None:
        key = os.environ.get(api_key_env, "").strip()  # files of secrets end with a line break
        if not key:
            raise UsageError(f"--api-key-env {api_key_env}: the environment has no such variable, or it is empty")
        return authorised(headers, f"Bearer {key}", "--api-key-env")
    return headers


def authorised(headers: Mapping[str, str], value: str, option: str) -> dict[str, str]:
    """The headers and one more, ``Authorization``.

    Raises:
        UsageError: it is there already; a server would take either.
    """
    if any(name.lower() == "authorization" for name in headers):
        raise UsageError(f"{option}: another option says who is asking, too (--header Authorization, --api-key-env); give one of them")
    return {**headers, "Authorization": value}
