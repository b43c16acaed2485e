"""Where a server is, and what every request to it begins with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

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
