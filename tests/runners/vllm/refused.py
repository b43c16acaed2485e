"""Completions that vLLM 0.32 refuses, or serves though one would not think so: one table for the fake server and for a real one.

The answers are those of a real server with the model ``tiny``; ``test_real_refusals.py`` asks it again. Two bodies are not here, as they
end that server: token id 2048 in a prompt, and ``min_tokens`` above 0. The tiny model has ids 0 to 2047, and its tokenizer says 2048.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import httpx

from kvbench.testing.fake_script import Script

LONGEST, VOCABULARY = 1024, 2048
SCRIPT = Script(max_model_len=LONGEST, vocabulary=VOCABULARY)
"""What the fake server is told of the real one: vLLM's ``--max-model-len``, and the tiny model's vocabulary."""

ABSENT = object()
BODY = {"model": "fake", "prompt": [1, 2, 3], "max_tokens": 2, "temperature": 0, "ignore_eos": True}
JSON = "application/json"
BAD = "BadRequestError"
TYPES = "Bad Request"
"""The error's type where a field has the wrong type."""


@dataclass(frozen=True)
class Seen:
    """The part of an answer that both servers must have alike."""

    status: int
    kind: str | None
    param: str | None
    code: int | None
    tokens: tuple[int, int] | None
    in_stream: bool


@dataclass(frozen=True)
class Case:
    """A body and its answer.

    Attributes:
        change: fields that differ from :data:`BODY`; or the whole body.
        status: of the answer.
        kind: the error's ``type``; ``None``: the answer has no error of vLLM's shape.
        param: the error's ``param``.
        says: a part of the answer.
        tokens: prompt and output tokens, where the completion is served whole.
        in_stream: HTTP 200, and the error is an event.
    """

    name: str
    change: dict[str, Any] | bytes = field(default_factory=dict)
    status: int = 200
    kind: str | None = None
    param: str | None = None
    says: str = ""
    tokens: tuple[int, int] | None = None
    content_type: str | None = JSON
    in_stream: bool = False

    def content(self) -> bytes:
        if isinstance(self.change, bytes):
            return self.change
        return json.dumps({name: value for name, value in {**BODY, **self.change}.items() if value is not ABSENT}).encode()

    def seen(self) -> Seen:
        code = None if self.kind is None else 400 if self.in_stream else self.status
        return Seen(self.status, self.kind, self.param, code, self.tokens, self.in_stream)


def send(http: httpx.Client, url: str, case: Case) -> tuple[Seen, str]:
    """Send one case; gives what was seen and the answer's text."""
    headers = {} if case.content_type is None else {"Content-Type": case.content_type}
    answer = http.post(f"{url}/v1/completions", content=case.content(), headers=headers)
    streams = answer.headers["content-type"].startswith("text/event-stream")
    if streams:
        assert answer.text.endswith("data: [DONE]\n\n")
    content = json.loads(answer.text.split("\n\n")[0].removeprefix("data: "))
    error = content.get("error")
    if error is not None:
        assert sorted(error) == ["code", "message", "param", "type"]
        return Seen(answer.status_code, error["type"], error["param"], error["code"], None, streams), error["message"]
    usage = None if streams else content.get("usage")
    tokens = None if usage is None else (usage["prompt_tokens"], usage["completion_tokens"])
    return Seen(answer.status_code, None, None, None, tokens, False), answer.text


def serves(name: str, tokens: tuple[int, int] | None = (3, 2), **change: Any) -> Case:
    return Case(name, change, tokens=tokens)


def refuses(name: str, param: str | None, says: str, status: int = 400, kind: str = BAD, in_stream: bool = False, **change: Any) -> Case:
    return Case(name, change, status, kind, param, says, in_stream=in_stream)


def mistyped(name: str, says: str, param: str | None = None, **change: Any) -> Case:
    """The last field that is changed has a wrong type."""
    return Case(name, change, 400, TYPES, param or f"body.{list(change)[-1]}", says)


def unread(name: str, body: bytes, param: str | None, says: str, kind: str | None = TYPES, content_type: str | None = JSON) -> Case:
    """A body that is no JSON object."""
    return Case(name, body, 400, kind, param, says, content_type=content_type)


SALT = "must be at most 128 characters and must not contain"
WHOLE, STREAM = json.dumps(BODY).encode(), {"stream": True}

CASES = (
    serves("as it is"),
    serves("stream", None, stream=True),
    serves("unknown fields", no_such=1, nested={"x": [1]}),
    serves("unknown stream option", None, stream=True, stream_options={"no_such": 1}),
    # the body
    unread("empty body", b"", "body", "Field required"),
    unread("null", b"null", "body", "Field required"),
    unread("list", b"[]", "body", "valid dictionary"),
    unread("string", b'"x"', "body", "valid dictionary"),
    unread("half a body", b'{"a":', "body.5", "JSON decode error"),
    unread("not UTF-8", b'{"a":"\xff\xfe"}', None, '{"detail":', kind=None),
    unread("number of 5,000 digits", b'{"prompt":[' + b"9" * 5000 + b"]}", None, '{"detail":', kind=None),
    unread("brackets without end", b"[" * 100_000, None, '{"detail":', kind=None),
    unread("no content type", WHOLE, None, "Unsupported Media Type", content_type=None),
    unread("text as content type", WHOLE, None, "Unsupported Media Type", content_type="text/plain"),
    unread("kind of JSON as content type", WHOLE, None, "Unsupported Media Type", content_type="application/vnd.x+json"),
    Case("content type with a charset", {}, tokens=(3, 2), content_type="Application/JSON; charset=utf-8"),
    # model
    serves("no model", model=ABSENT),
    serves("model null", model=None),
    serves("model empty", model=""),
    refuses("other model", "model", "does not exist", 404, "NotFoundError", model="other"),
    refuses("other model, in a stream", "model", "does not exist", 404, "NotFoundError", model="other", stream=True),
    mistyped("model as a number", "valid string", model=5),
    # prompt
    refuses("no prompt", "prompt", "Either prompt or prompt_embeds", prompt=ABSENT),
    refuses("prompt null", "prompt", "Either prompt or prompt_embeds", prompt=None),
    refuses("prompt empty text", "prompt", "Either prompt or prompt_embeds", prompt=""),
    refuses("prompt without a token", None, "at least one prompt", prompt=[]),
    refuses("one prompt without a token", None, "prompt cannot be empty", prompt=[[]]),
    refuses("the same, in a stream", None, "prompt cannot be empty", 200, in_stream=True, prompt=[[]], stream=True),
    serves("one prompt in a list", (2, 2), prompt=[[1, 2]]),
    serves("whole numbers with a point", (2, 2), prompt=[1, 2.0]),
    serves("booleans as token ids", (2, 2), prompt=[True, False]),
    mistyped("token id with a fraction", "fractional part", "body.prompt.1", prompt=[1, 2.5]),
    mistyped("token id below 0", "greater than or equal to 0", "body.prompt.1", prompt=[1, -1]),
    mistyped("token ids below 0", "greater than or equal to 0", "body.prompt.1", prompt=[1, -1, -2]),
    mistyped("token id below 0 in the second prompt", "greater than or equal to 0", "body.prompt.0", prompt=[[1], [1, -1]]),
    mistyped("token id null", "valid integer", "body.prompt.1", prompt=[1, None]),
    mistyped("token ids and text", "valid integer", "body.prompt.1", prompt=[1, "a"]),
    mistyped("token ids and prompts", "valid integer", "body.prompt.1", prompt=[1, [2]]),
    mistyped("prompt as a number", "valid list", prompt=5),
    mistyped("prompt as an object", "valid list", prompt={"a": 1}),
    refuses("1,025 prompts", "prompt", "exceeds the maximum allowed count of 1024", prompt=[[1]] * 1025),
    serves("last token id", (1, 2), prompt=[VOCABULARY - 1]),
    refuses("token id too high", None, "Token id 5000 is out of vocabulary", prompt=[5000]),
    refuses("token id of 70 bits", None, "is out of vocabulary", prompt=[2**70]),
    refuses("token id too high, in a stream", None, "Token id 5000 is out of vocabulary", 200, in_stream=True, prompt=[5000], stream=True),
    # context
    serves("all of the context but one token", (LONGEST - 1, 1), prompt=[1] * (LONGEST - 1)),
    refuses("all of the context", "max_tokens", "max_tokens must be at least 1, got 0", prompt=[1] * LONGEST),
    refuses("more than the context", "input_tokens", "maximum context length is 1024", prompt=[1] * (LONGEST + 1)),
    refuses("more than the context, in a stream", "input_tokens", "context length is 1024", prompt=[1] * (LONGEST + 1), stream=True),
    refuses("one of two prompts too long", "input_tokens", "context length is 1024", prompt=[[1], [1] * (LONGEST + 1)]),
    serves("output that is cut to fit", (1020, 4), prompt=[1] * 1020, max_tokens=10),
    serves("max_tokens as long as the context", (1000, 24), prompt=[1] * 1000, max_tokens=LONGEST),
    refuses("max_tokens longer than the context", "max_tokens", "cannot be greater than max_model_len=1024", max_tokens=LONGEST + 1),
    refuses("max_tokens of 70 bits", "max_tokens", "cannot be greater than max_model_len=1024", max_tokens=2**70),
    serves("no max_tokens", (3, 16), max_tokens=ABSENT),
    serves("max_tokens null", (3, 16), max_tokens=None),
    serves("max_tokens as text", (3, 3), max_tokens="3"),
    serves("max_tokens true", (3, 1), max_tokens=True),
    refuses("max_tokens 0", "max_tokens", "at least 1, got 0", max_tokens=0),
    refuses("max_tokens below 0", "max_tokens", "at least 1, got -1", max_tokens=-1),
    refuses("max_tokens 0, in a stream", "max_tokens", "at least 1, got 0", max_tokens=0, stream=True),
    mistyped("max_tokens as a word", "valid integer", max_tokens="x"),
    mistyped("max_tokens with a fraction", "fractional part", max_tokens=2.5),
    serves("truncated to its end", (2, 2), truncate_prompt_tokens=2),
    serves("truncated to what fits", (LONGEST - 1, 1), prompt=[1] * 1030, truncate_prompt_tokens=-1),
    refuses("truncated to all of the context", "max_tokens", "at least 1, got 0", prompt=[1] * 1030, truncate_prompt_tokens=LONGEST),
    refuses("truncated to more", "truncate_prompt_tokens", "cannot be greater than", truncate_prompt_tokens=LONGEST + 1),
    refuses("truncated to nothing", None, "prompt cannot be empty", truncate_prompt_tokens=0),
    mistyped("truncated to less than nothing", "greater than or equal to -1", truncate_prompt_tokens=-2),
    mistyped("truncated in the middle", "'left' or 'right'", truncation_side="middle"),
    refuses("routed experts behind the prompt", "routed_experts_prompt_start", "between 0 and the prompt", routed_experts_prompt_start=4),
    # salt
    serves("salt", cache_salt="a-b:c.d_é "),
    serves("salt of 128 characters", cache_salt="a" * 128),
    serves("salt null", cache_salt=None),
    *(refuses(f"salt with {char!r}", "cache_salt", SALT, cache_salt=f"a{char}b") for char in "/@\\\0"),
    refuses("salt with a slash, in a stream", "cache_salt", SALT, cache_salt="a/b", stream=True),
    refuses("salt of 129 characters", "cache_salt", SALT, cache_salt="a" * 129),
    refuses("salt empty", "cache_salt", "must be a non-empty string", cache_salt=""),
    refuses("salt as a number", "cache_salt", "must be a non-empty string", cache_salt=5),
    refuses("salt refused before types", "cache_salt", SALT, max_tokens="x", cache_salt="/"),
    # stream
    serves("stream as a word", None, stream="yes"),
    serves("stream null", stream=None),
    mistyped("stream as another word", "valid boolean", stream="perhaps"),
    refuses("stream options alone", "stream_options", "only be defined when `stream=True`", stream_options={"include_usage": True}),
    refuses("stream options before salt", "stream_options", "only be defined", cache_salt="/", stream_options={"include_usage": True}),
    serves("stream options empty", stream_options={}),
    serves("stream options", None, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}),
    mistyped("stream options as text", "valid dictionary", stream=True, stream_options="x"),
    mistyped("stream option as a word", "boolean", "body.stream_options.include_usage", stream=True, stream_options={"include_usage": "x"}),
    mistyped("stream interval 0", "greater than or equal to 1", stream_interval=0),
    # sampling
    serves("temperature 2", temperature=2),
    serves("temperature null", temperature=None),
    serves("temperature as text", temperature="0.5"),
    refuses("temperature above 2", "temperature", "must be in [0, 2], got 2.1", temperature=2.1),
    refuses("temperature above 2, in a stream", "temperature", "must be in [0, 2], got 2.1", temperature=2.1, stream=True),
    refuses("temperature below 0", "temperature", "must be non-negative, got -1.0", temperature=-1),
    refuses("temperature NaN", "temperature", "must be a finite number", temperature=math.nan),
    refuses("temperature infinite", "temperature", "must be a finite number", temperature=math.inf),
    mistyped("temperature as a word", "valid number", temperature="hot"),
    serves("top_p 1", top_p=1),
    refuses("top_p 0", "top_p", "must be in (0, 1], got 0.0", top_p=0),
    refuses("top_p above 1", "top_p", "must be in (0, 1], got 1.1", top_p=1.1),
    serves("top_k -1", top_k=-1),
    refuses("top_k -2", None, "top_k must be 0 (disable), or at least 1, got -2", top_k=-2),
    mistyped("top_k with a fraction", "fractional part", top_k=1.5),
    refuses("min_p above 1", None, "min_p must be in [0, 1], got 1.1", min_p=1.1),
    refuses("presence_penalty above 2", None, "presence_penalty must be in [-2, 2], got 2.1", presence_penalty=2.1),
    refuses("frequency_penalty below -2", None, "frequency_penalty must be in [-2, 2], got -2.1", frequency_penalty=-2.1),
    refuses("repetition_penalty 0", None, "repetition_penalty must be greater than zero", repetition_penalty=0),
    refuses("repetition_penalty infinite", None, "repetition_penalty must be a finite number", repetition_penalty=math.inf),
    refuses("n 0", None, "n must be at least 1, got 0", n=0),
    refuses("n 2, greedy", None, "n must be 1 when using greedy sampling", n=2),
    refuses("n 16,385", None, "n must be at most 16384", n=16385, temperature=1),
    mistyped("n null", "valid integer", n=None),
    serves("min_tokens 0", min_tokens=0),
    refuses("min_tokens below 0", None, "min_tokens must be greater than or equal to 0", min_tokens=-1),
    refuses("min_tokens above max_tokens", None, "less than or equal to max_tokens=2, got 3", min_tokens=3),
    mistyped("min_tokens null", "valid integer", min_tokens=None),
    mistyped("ignore_eos null", "valid boolean", ignore_eos=None),
    serves("seed", seed=-(2**63)),
    mistyped("seed of 65 bits", "less than", seed=2**63),
    # stop
    serves("4 stop strings", stop=["@1", "@2", "@3", "@4"]),
    mistyped("5 stop strings", "valid string", stop=["@1", "@2", "@3", "@4", "@5"]),
    refuses("stop string empty", None, "stop cannot contain an empty string", stop=""),
    refuses("stop string empty in a list", None, "stop cannot contain an empty string", stop=["a", ""]),
    serves("stop null", stop=None),
    serves("stop_token_ids", stop_token_ids=[VOCABULARY - 1]),
    refuses("stop token id too high", "stop_token_ids", "out-of-vocab token ids", stop_token_ids=[VOCABULARY]),
    refuses("the same, in a stream", "stop_token_ids", "out-of-vocab", 200, in_stream=True, stop_token_ids=[VOCABULARY], stream=True),
    refuses("stop token id below 0", "stop_token_ids", "out-of-vocab token ids", stop_token_ids=[-1]),
    mistyped("stop token id as a word", "valid integer", "body.stop_token_ids.0", stop_token_ids=["x"]),
    refuses("bad word empty", None, "bad_words cannot contain an empty string", bad_words=[""]),
    mistyped("bad_words null", "valid list", bad_words=None),
    serves("logit_bias", logit_bias={"5": 1}),
    refuses("logit_bias of a word", "logit_bias", "cannot be converted to integer", logit_bias={"x": 1}),
    refuses("logit_bias too high", "logit_bias", "out-of-vocab token ids", logit_bias={str(VOCABULARY): 1}),
    refuses("no allowed token", "allowed_token_ids", "is not None and empty", allowed_token_ids=[]),
    refuses("allowed token too high", "allowed_token_ids", "out-of-vocab token id", allowed_token_ids=[VOCABULARY]),
    # log-probabilities
    refuses("logprobs 21", "logprobs", "sample logprobs of 21, which is greater than max allowed: 20", logprobs=21),
    refuses("logprobs 21, in a stream", "logprobs", "greater than max allowed: 20", 200, in_stream=True, logprobs=21, stream=True),
    refuses("logprobs of all", "logprobs", "sample logprobs of 2048", logprobs=-1),
    refuses("logprobs -2", "logprobs", "must be a positive value or -1", logprobs=-2),
    refuses("logprobs as text", "logprobs", "must be an integer", logprobs="5"),
    mistyped("logprobs with a fraction", "fractional part", logprobs=1.5),
    refuses("prompt_logprobs 21", "prompt_logprobs", "prompt logprobs of 21", prompt_logprobs=21),
    refuses("prompt_logprobs in a stream", "prompt_logprobs", "not available when `stream=True`", prompt_logprobs=1, stream=True),
    refuses("token ids without logprobs", "logprob_token_ids", "`logprobs` must be set", logprob_token_ids=[1]),
    # other fields
    refuses("suffix", "suffix", "suffix requires text prompt", suffix="x"),
    refuses("suffix and echo", "suffix", "Echo is unsupported with suffix", suffix="x", echo=True),
    refuses("suffix of a text", "suffix", "only supported for models with FIM", suffix="x", prompt="a"),
    refuses("embeddings", "prompt_embeds", "--enable-prompt-embeds", prompt=None, prompt_embeds="AAAA"),
    refuses("beam search in a stream", None, "not currently supported with beam search", use_beam_search=True, stream=True),
    refuses("thinking budget", None, "reasoning_config is not configured", thinking_token_budget=5),
    refuses("thinking budget below -1", "thinking_token_budget", "non-negative integer", thinking_token_budget=-2),
    serves("thinking budget without end", thinking_token_budget=-1),
    serves("response_format text", response_format={"type": "text"}),
    refuses("response_format without its schema", "response_format", "must be provided", response_format={"type": "json_schema"}),
    mistyped("response_format of no such type", "Input should be", "body.response_format.type", response_format={"type": "x"}),
    refuses("two constraints", "structured_outputs", "only use one kind", structured_outputs={"json": {}, "regex": "a"}),
    serves("priority", priority=1),
    serves("kv_transfer_params", kv_transfer_params={"cached_token_stats": True}),
    mistyped("kv_transfer_params as text", "valid dictionary", kv_transfer_params="x"),
    mistyped("vllm_xargs nested", "valid string", "body.vllm_xargs.a", vllm_xargs={"a": {"b": 1}}),
    mistyped("user as a number", "valid string", user=5),
    mistyped("two mistakes", "2 validation errors", "body.max_tokens", temperature="x", max_tokens="x"),
)

BEYOND = (
    Case("text", {"prompt": "hello"}),
    Case("texts", {"prompt": ["1", "2"]}),
    Case("two prompts", {"prompt": [[1], [2]]}),
    Case("n 2", {"n": 2, "temperature": 1}),
    Case("beam search", {"use_beam_search": True}),
    Case("echo", {"echo": True}),
    Case("logprobs", {"logprobs": 1}),
    Case("prompt_logprobs", {"prompt_logprobs": 1}),
    Case("repetition_detection", {"repetition_detection": {"max_pattern_size": 2, "min_count": 2}}),
)
"""What vLLM serves and the fake server cannot: it refuses with 501."""

NO_ROUTE = (
    ("GET", "/nowhere", 404, "Not Found"),
    ("GET", "/v1/completions", 405, "Method Not Allowed"),
    ("POST", "/health", 405, "Method Not Allowed"),
)
"""Method and path that there are not, and the answer's status and ``detail``."""
