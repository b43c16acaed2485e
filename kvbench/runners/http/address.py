"""Where a server is, who is asking, and so what every request to it begins with. No secret is shown."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit

from kvbench.errors import UsageError

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t -~]*")


class Address:
    """Where a server is, and the head that every request to it has."""

    def __init__(self, url: str, headers: Mapping[str, str], endpoint: str = "/") -> None:
        """``url``: the server's, without ``/v1``; ``endpoint``: the path from there on.

        Of two headers whose names differ in case only, the one given here is sent.

        Raises:
            UsageError: not an http or https address, or a header that HTTP cannot carry.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")  # as every resolver does, whose error would name nothing
        except ValueError as error:
            raise UsageError(f"{url}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or "?" in url or "#" in url:
            raise UsageError(f"{url}: not the address of a server; it should look like http://127.0.0.1:8000")
        self.secure = parts.scheme == "https"
        self.host = parts.hostname
        self.port = port or (443 if self.secure else 80)
        own = {"Host": parts.netloc.rpartition("@")[2], "Content-Type": "application/json", "Accept": "text/event-stream"}
        given = {name.lower() for name in headers}
        named = {name: value for name, value in own.items() if name.lower() not in given} | dict(headers)
        for name, value in named.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise UsageError(f"header {name}: a name and a value in plain ASCII, without line breaks, are expected")
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        path = parts.path.rstrip("/")
        self._head = f"POST {path}{endpoint} HTTP/1.1\r\n{lines}"
        self.health = f"GET {path}/health HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode("latin-1", "replace")
        """A whole request that any server answers, if only with an error."""

    def request(self, body: bytes, request_id: str) -> bytes:
        """The whole request. The id goes along, so that the server's log names it (vLLM's does)."""
        return f"{self._head}X-Request-Id: {request_id}\r\nContent-Length: {len(body)}\r\n\r\n".encode("latin-1", "replace") + body


def split_login(url: str) -> tuple[str, str]:
    """The address without its login, and the login as HTTP's basic authentication sends it; empty where there is none."""
    scheme, _, rest = url.partition("://")
    login, at, _ = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")
    user, _, password = login.partition(":")
    encoded = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode(errors="surrogateescape")).decode()
    return f"{scheme}://{rest.removeprefix(login + at)}", f"Basic {encoded}" if login else ""


def request_headers(words: Sequence[str], api_key_env: str | None) -> dict[str, str]:
    """The headers that ``--header`` and ``--api-key-env`` ask for.

    Raises ``UsageError`` where one is no header, the variable is empty, or two say who is asking.
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
    """The headers and one more, ``Authorization``; ``UsageError`` where it is there already, as a server would take either."""
    if any(name.lower() == "authorization" for name in headers):
        raise UsageError(f"{option}: another option says who is asking, too (--header Authorization, --api-key-env); give one of them")
    return {**headers, "Authorization": value}
