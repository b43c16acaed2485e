"""``/v1/completions`` with token ids for a prompt, as vLLM takes them: what is sent is exactly what was drawn."""

from __future__ import annotations

from typing import Any

import msgspec

from kvbench.runners.base import Request
from kvbench.runners.http.endpoints.chunk import read_chunk, read_error


class Completions:
    """An :class:`~kvbench.runners.http.endpoints.endpoint.Endpoint`."""

    name = "completions"
    path = "/v1/completions"
    read = staticmethod(read_chunk)
    read_error = staticmethod(read_error)

    def encode(self, request: Request, model: str, ids: bool, cache_salt: str | None) -> bytes:
        """Greedy, or sampled with the request's seed; the end-of-text token is ignored."""
        body: dict[str, Any] = {
            "model": model,
            "prompt": list(request.prompt),
            "max_tokens": request.output_tokens,
            "ignore_eos": True,
            "temperature": request.temperature,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        if cache_salt is not None:
            body["cache_salt"] = cache_salt
        if request.temperature:
            body["seed"] = request.seed
        if ids:
            body["return_token_ids"] = True
        return msgspec.json.encode(body)


ENDPOINT = Completions()
