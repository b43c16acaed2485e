"""A completion request as vLLM 0.32 reads it: fields, types and defaults as data, and what is refused before an engine sees it.

The order of the checks is vLLM's (``entrypoints/openai/completion/protocol.py``). Fields that vLLM does not know are ignored, as it ignores
them. A client is timed while the server reads prompts of thousands of tokens, so whatever looks at each token runs in C: msgspec, pydantic,
``min`` and ``max``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

import msgspec
from pydantic import BaseModel, Field, ValidationError

MAX_PROMPTS = 1024
MAX_SALT = 128
MAX_STOPS = 4
INT64 = 2**63
REPORTED = 10
"""Errors of one body that the answer lists."""


class Refusal(Exception):
    """A request that the server does not serve.

    Attributes:
        status: of the answer.
        kind: the error's ``type``; ``None``: the answer is the web framework's ``{"detail": ...}``.
        param: the error's ``param``.
        in_stream: the client asked for a stream, and vLLM had begun it: HTTP 200, and the error is the only event.
    """

    def __init__(self, message: str, param: str | None = None, kind: str | None = "BadRequestError", status: int = 400) -> None:
        super().__init__(message)
        self.status, self.kind, self.param, self.in_stream = status, kind, param, False


Signed = Annotated[int, Field(ge=-INT64, lt=INT64)]


class StreamOptions(BaseModel):
    """What a stream tells beside its tokens."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class ResponseFormat(BaseModel):
    """The kind of text that is asked for."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]


class Completion(BaseModel):
    """The body of ``POST /v1/completions``."""

    model: str | None = None
    prompt: list[int] | list[list[int]] | str | list[str] | None = None
    echo: bool | None = False
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: int | None = None
    max_tokens: int | None = 16
    n: int = 1
    presence_penalty: float | None = None
    seed: Signed | None = None
    stop: str | Annotated[list[str], Field(max_length=MAX_STOPS)] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    suffix: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    watermarking: bool | None = None
    length_penalty: float = 1.0
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, lt=INT64)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    allowed_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    bad_words: list[str] = []
    prompt_embeds: bytes | list[bytes] | None = None
    add_special_tokens: bool = True
    response_format: ResponseFormat | None = None
    structured_outputs: dict[str, Any] | None = None
    priority: Signed = 0
    request_id: str = ""
    session_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    routed_experts_prompt_start: Annotated[int, Field(ge=0)] = 0
    return_token_offsets: bool | None = False
    mm_payload: Literal["tensors", "none"] = "tensors"
    return_mm_kwargs: bool | None = None
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None
    repetition_detection: dict[str, Any] | None = None
    thinking_token_budget: int | None = None
    stream_interval: Annotated[int, Field(ge=1)] | None = None


def read(body: bytes, content_type: str) -> Completion:
    """Read a completion request; raises :class:`Refusal` where it is not JSON, or not what vLLM takes for a completion."""
    if content_type.partition(";")[0].lower() != "application/json":
        raise _invalid(["Unsupported Media Type: Only 'application/json' is allowed"], None)
    values = _json(body)
    if isinstance(values, dict):
        _check_raw(values)
    try:
        asked = Completion.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        names = [_name(one["loc"]) for one in found]
        raise _invalid([f"{name}: {one['msg']}" for name, one in zip(names, found, strict=True)], names[0]) from None
    _check_signs(asked.prompt)
    return asked


def _check_signs(prompt: object) -> None:
    """Check that no token id is below 0; pydantic's own limit would make the reading of a prompt three times as long."""
    many = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], list)
    for tokens in cast("list[object]", prompt) if many else [prompt]:
        if isinstance(tokens, list) and tokens and isinstance(tokens[0], int) and min(tokens) < 0:
            place = 0 if many else next(place for place, token in enumerate(tokens) if token < 0)  # of many, vLLM always names the first
            name = f"body.prompt.{place}"
            raise _invalid([f"{name}: Input should be greater than or equal to 0"], name)


def _json(body: bytes) -> Any:
    """Read the body as ``json.loads`` reads it, which vLLM's web framework calls; msgspec is faster, and takes fewer bodies."""
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):
        if (values := msgspec.json.decode(body)) is not None:
            return values
    try:
        values = json.loads(body) if body else None
    except json.JSONDecodeError as error:
        raise _invalid([f"JSON decode error: {error.msg}"], f"body.{error.pos}") from None
    except (ValueError, RecursionError):  # no UTF-8, a number that is too long, brackets that are too deep
        raise Refusal("There was an error parsing the body", kind=None) from None
    if values is None:
        raise _invalid(["Field required"], "body")
    return values


def _check_raw(values: dict[str, Any]) -> None:
    """Check what vLLM checks before it looks at types."""
    prompt, embeds = values.get("prompt"), values.get("prompt_embeds")
    for name, many in (("prompt", prompt), ("prompt_embeds", embeds)):
        if isinstance(many, list) and len(many) > MAX_PROMPTS and not (name == "prompt" and isinstance(many[0], int)):
            raise Refusal(f"{name} list length {len(many)} exceeds the maximum allowed count of {MAX_PROMPTS}.", name)
    if prompt in (None, "") and embeds in (None, []):
        raise Refusal("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    if values.get("stream_options") and not values.get("stream"):
        raise Refusal("Stream options can only be defined when `stream=True`.", "stream_options")
    _check_logprobs(values)
    structured, form = values.get("structured_outputs"), values.get("response_format")
    if isinstance(structured, dict) and sum(structured.get(kind) is not None for kind in ("json", "regex", "choice")) > 1:
        raise Refusal("You can only use one kind of constraints for structured outputs.", "structured_outputs")
    if isinstance(form, dict) and form.get("type") == "json_schema" and form.get("json_schema") is None:
        raise Refusal("When response_format type is 'json_schema', the 'json_schema' field must be provided.", "response_format")
    _check_salt(values.get("cache_salt"))
    budget = values.get("thinking_token_budget")
    if budget is not None and (type(budget) is not int or budget < -1):
        raise Refusal("`thinking_token_budget` must be a non-negative integer or -1 for unlimited.", "thinking_token_budget")


def _check_logprobs(values: dict[str, Any]) -> None:
    ids, sample = values.get("logprob_token_ids"), values.get("logprobs")
    if ids and values.get("use_beam_search"):
        raise Refusal("`logprob_token_ids` is not supported with beam search.", "logprob_token_ids")
    if values.get("use_beam_search") and values.get("echo") and sample is not None:
        raise Refusal("`echo` with `logprobs` is not supported with beam search.", "echo")
    if ids and values.get("echo") and values.get("max_tokens") == 0:
        raise Refusal("`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0`.", "logprob_token_ids")
    if ids and sample is None:
        raise Refusal("when using `logprob_token_ids`, `logprobs` must be set.", "logprob_token_ids")
    for name in ("prompt_logprobs", "logprobs"):
        if values.get(name) is not None and not isinstance(values[name], int | float):
            raise Refusal(f"`{name}` must be an integer.", name)
    prompt = values.get("prompt_logprobs")
    if prompt is not None and values.get("stream") and (prompt > 0 or prompt == -1):
        raise Refusal("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
    for name in ("prompt_logprobs", "logprobs"):
        if values.get(name) is not None and values[name] < 0 and values[name] != -1:
            raise Refusal(f"`{name}` must be a positive value or -1.", name)


def _check_salt(salt: object) -> None:
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise Refusal("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if len(salt) > MAX_SALT or not set(salt).isdisjoint("@/\\\0"):
        says = f"Parameter 'cache_salt' must be at most {MAX_SALT} characters and must not contain '@', '/', '\\\\', or NUL."
        raise Refusal(says, "cache_salt")


def _invalid(errors: Sequence[str], param: str | None) -> Refusal:
    """A body whose types are wrong; vLLM leaves that to FastAPI, whose word for it has a space."""
    more = [f"...and {len(errors) - REPORTED} more errors"] if len(errors) > REPORTED else []
    count = f"{len(errors)} validation error{'' if len(errors) == 1 else 's'}:"
    return Refusal("\n  ".join([count, *errors[:REPORTED], *more]), param, "Bad Request")


def _name(place: Sequence[int | str]) -> str:
    """``body.prompt.1``; a step that only names one of the field's types is left out."""
    kinds = ("str", "int", "float", "bytes")
    return ".".join(["body", *(str(step) for step in place if step not in kinds and "[" not in str(step))])
