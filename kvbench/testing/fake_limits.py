"""Which completions vLLM 0.32 refuses though their types are right: limits of the model, the context and the sampling parameters.

vLLM checks in two places. What its API server refuses gets HTTP 400 (:data:`RANGES` among it). What its engine's input processor refuses
(:func:`_check_in_engine`) gets the same, but when the client asked for a stream, the stream has begun: HTTP 200, and the error is an event.

A request that vLLM would serve and the scripted server cannot (:data:`BEYOND`) gets HTTP 501, as it would otherwise get a wrong answer.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import cast

from kvbench.testing.fake_protocol import INT64, Completion, Refusal
from kvbench.testing.fake_script import MODEL, Script
from kvbench.testing.fake_stream import Ask

MAX_SEQUENCES = 16384
MAX_LOGPROBS = 20
MAX_LOGPROB_IDS = 128

INF, LEAST, LARGEST = math.inf, math.ulp(0.0), sys.float_info.max
"""No limit; the smallest number above 0; the largest finite one."""

RANGES = (
    ("n", 1, INF, "at least 1"),
    ("n", 1, MAX_SEQUENCES, f"at most {MAX_SEQUENCES}"),
    ("presence_penalty", -2, 2, "in [-2, 2]"),
    ("frequency_penalty", -2, 2, "in [-2, 2]"),
    ("repetition_penalty", -LARGEST, LARGEST, "a finite number"),
    ("repetition_penalty", LEAST, INF, "greater than zero"),
    ("temperature", -LARGEST, LARGEST, "a finite number"),
    ("temperature", 0, INF, "non-negative"),
    ("temperature", 0, 2, "in [0, 2]"),
    ("top_p", LEAST, 1, "in (0, 1]"),
    ("top_k", -1, INF, "0 (disable), or at least 1"),
    ("min_p", 0, 1, "in [0, 1]"),
    ("max_tokens", 1, INF, "at least 1"),
    ("min_tokens", 0, INF, "greater than or equal to 0"),
)
"""Ranges of vLLM's ``SamplingParams``, in its order, ends included, and what the error says of them; NaN is in none.

They see ``max_tokens`` as the context has cut it.
"""

NAMED = ("temperature", "top_p", "max_tokens")
"""The fields that vLLM names in the error where they are out of range."""

BEYOND: dict[str, Callable[[Completion], bool]] = {
    "a prompt of text": lambda ask: isinstance(ask.prompt, str) or isinstance((ask.prompt or [0])[0], str),
    "several prompts": lambda ask: isinstance(ask.prompt, list) and isinstance(ask.prompt[0], list) and len(ask.prompt) > 1,
    "n above 1": lambda ask: ask.n > 1,
    "use_beam_search": lambda ask: ask.use_beam_search,
    "echo": lambda ask: bool(ask.echo),
    "logprobs": lambda ask: ask.logprobs is not None,
    "prompt_logprobs": lambda ask: ask.prompt_logprobs is not None,
    "response_format": lambda ask: ask.response_format is not None and ask.response_format.type != "text",
    "structured_outputs": lambda ask: ask.structured_outputs is not None,
    "repetition_detection": lambda ask: ask.repetition_detection is not None,
}
"""What vLLM serves and the scripted server cannot: which requests ask for it."""


def accept(asked: Completion, request_id: str, script: Script) -> Ask:
    """What a request asks for: its prompt, truncated if it says so, and as many tokens as the context has room for.

    Raises:
        Refusal: vLLM would refuse it, or the scripted server cannot serve it.
    """
    prompts = _prompts(asked)
    if asked.stream and asked.use_beam_search:
        raise Refusal("Streaming is not currently supported with beam search")
    if asked.model and asked.model != MODEL:
        raise Refusal(f"The model `{asked.model}` does not exist. Valid aliases: {MODEL}.", "model", "NotFoundError", 404)
    if asked.suffix is not None:
        raise _suffix_refused(asked)
    longest = script.max_model_len
    _check_context(asked, longest)
    prompts = [_truncated(prompt, asked, longest) for prompt in prompts]
    for length in map(len, prompts):
        if length > longest:
            says = f"This model's maximum context length is {longest} tokens. However, your prompt contains {length} input tokens."
            raise Refusal(says, "input_tokens")
    room = min((longest - len(prompt) for prompt in prompts), default=longest)
    asked.max_tokens = min(16 if asked.max_tokens is None else asked.max_tokens, room)
    _check_sampling(asked)
    try:
        _check_in_engine(asked, prompts, script.vocabulary)
    except Refusal as refusal:
        refusal.in_stream = bool(asked.stream)
        raise
    for what, asks in BEYOND.items():
        if asks(asked):
            raise Refusal(f"the scripted server cannot serve {what}, though vLLM can", kind="NotImplementedError", status=501)
    return _ask(asked, request_id, prompts[0], script.stops_after)


def _ask(asked: Completion, request_id: str, prompt: list[int], stops_after: int | None) -> Ask:
    options = asked.stream_options
    usage = options is not None and bool(options.include_usage)
    counts = usage and options is not None and bool(options.continuous_usage_stats)
    ids, tokens, salt = bool(asked.return_token_ids), asked.max_tokens or 0, asked.cache_salt or ""
    if stops_after is not None and not asked.ignore_eos:
        tokens = min(tokens, stops_after)
    return Ask(request_id, asked.model or MODEL, prompt, tokens, usage, counts, ids, bool(asked.stream), salt)


def _prompts(asked: Completion) -> list[list[int]]:
    """The prompts that are token ids; of text, the scripted server has none."""
    if not isinstance(asked.prompt, list) or not asked.prompt or isinstance(asked.prompt[0], str):
        return []
    return cast("list[list[int]]", [asked.prompt] if isinstance(asked.prompt[0], int) else asked.prompt)


def _suffix_refused(asked: Completion) -> Refusal:
    if asked.echo:
        says = "Echo is unsupported with suffix."
    elif asked.prompt_embeds is not None or asked.truncate_prompt_tokens is not None:
        says = f"suffix is not supported with {'truncate_prompt_tokens' if asked.prompt_embeds is None else 'prompt_embeds'}"
    elif isinstance(asked.prompt, str):
        says = "suffix is only supported for models with FIM completion rendering"
    else:
        says = "suffix requires text prompt input for FIM completion rendering"
    return Refusal(says, "suffix")


def _check_context(asked: Completion, longest: int) -> None:
    """Check what is asked of the context, whatever the prompt."""
    for name, value in (("max_tokens", asked.max_tokens), ("truncate_prompt_tokens", asked.truncate_prompt_tokens)):
        if value is not None and value > longest:
            raise Refusal(f"{name}={value} cannot be greater than max_model_len={longest}.", name)
    if asked.prompt_embeds:
        raise Refusal("You must set `--enable-prompt-embeds` to input `prompt_embeds`.", "prompt_embeds")
    if asked.prompt == []:
        raise Refusal("You must pass at least one prompt")


def _truncated(prompt: list[int], asked: Completion, longest: int) -> list[int]:
    """The prompt's end, unless the request names the other side."""
    limit = longest - 1 if asked.truncate_prompt_tokens == -1 else asked.truncate_prompt_tokens
    if limit is None or limit >= len(prompt):
        return prompt
    return prompt[:limit] if asked.truncation_side == "right" else prompt[len(prompt) - limit :]


def _check_sampling(asked: Completion) -> None:
    """Check the sampling parameters, as far as they need no model."""
    if wrong := [key for key in asked.logit_bias or () if not _is_int(key)]:
        raise Refusal(f"logit_bias contains key(s) that cannot be converted to integer token IDs: {wrong!r}", "logit_bias")
    for name, low, high, bound in RANGES:
        value = getattr(asked, name)
        if value is not None and not low <= value <= high:
            raise Refusal(f"{name} must be {bound}, got {value}.", name if name in NAMED else None)
    if asked.max_tokens is not None and asked.min_tokens > asked.max_tokens:
        raise Refusal(f"min_tokens must be less than or equal to max_tokens={asked.max_tokens}, got {asked.min_tokens}.")
    if asked.stop == "" or "" in (asked.stop or ()):
        raise Refusal("stop cannot contain an empty string.")
    if "" in asked.bad_words:
        raise Refusal("bad_words cannot contain an empty string.")
    if asked.n != 1 and asked.temperature == 0:
        raise Refusal(f"n must be 1 when using greedy sampling, got {asked.n}.")


def _check_in_engine(asked: Completion, prompts: Sequence[list[int]], vocabulary: int | None) -> None:
    """Check what the engine's input processor checks; ids of tokens only where the vocabulary is known."""
    size = INT64 if vocabulary is None else vocabulary
    _check_logprobs(asked, size)
    named = {
        "logprob_token_ids": asked.logprob_token_ids,
        "logit_bias": [int(key) for key in asked.logit_bias or ()],
        "stop_token_ids": asked.stop_token_ids,
        "allowed_token_ids": asked.allowed_token_ids,
    }
    for name, ids in named.items():
        if wrong := [token for token in ids or () if not 0 <= token < size]:
            raise Refusal(f"token_id(s) {wrong} in {name} contain out-of-vocab token ids. Vocabulary size: {size}", name)
    if asked.allowed_token_ids == []:
        raise Refusal("allowed_token_ids is not None and empty!", "allowed_token_ids")
    if asked.thinking_token_budget not in (None, -1):
        raise Refusal("thinking_token_budget is set but reasoning_config is not configured.")
    for prompt in prompts:
        if not prompt:
            raise Refusal("The decoder prompt cannot be empty")
        if vocabulary is not None and (highest := max(prompt)) >= size:
            raise Refusal(f"Token id {highest} is out of vocabulary")
        if asked.routed_experts_prompt_start > len(prompt):
            says = f"routed_experts_prompt_start must be between 0 and the prompt length ({len(prompt)}), inclusive."
            raise Refusal(says, "routed_experts_prompt_start")


def _check_logprobs(asked: Completion, vocabulary: int) -> None:
    ids = asked.logprob_token_ids or []
    for name, kind, many in (("logprobs", "sample", None if ids else asked.logprobs), ("prompt_logprobs", "prompt", asked.prompt_logprobs)):
        many = vocabulary if many == -1 else many
        if many is not None and many > MAX_LOGPROBS:
            raise Refusal(f"Requested {kind} logprobs of {many}, which is greater than max allowed: {MAX_LOGPROBS}", name)
    if len(ids) > MAX_LOGPROB_IDS:
        says = f"Requested logprob_token_ids of length {len(ids)}, which is greater than max allowed: {MAX_LOGPROB_IDS}"
        raise Refusal(says, "logprob_token_ids")


def _is_int(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True
