"""Whether the files of a run folder belong together: a line doubled, taken out or changed after the run shows in what the others say.

A pass in ``passes.jsonl`` says how many requests it had, how many failed, and how long it took; a manifest which arms and repeats there
were. A run that came to its end has them all; one that did not may have lines of one pass more, the one that it was at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

Line = Mapping[str, Any]
_PASS = ("arm", "repeat", "pass_index", "pass")
_TIERS = ("cached_tokens_device", "cached_tokens_host", "computed_tokens")
CHECKED = (*_PASS, "position", "request_id", "prompt_tokens", *_TIERS, "scheduled_s", "sent_s", "first_token_s", "last_token_s", "end_s")
"""The fields of a request line that are looked at, beside ``error``."""

ENDED = frozenset({"complete", "invalid"})
"""Status of a run that came to its end: all its lines are on the disk."""

CLOSE_S = 1e-6
"""Times that are nearer are the same: files keep more digits."""


def faults(manifest: Mapping[str, Any], requests: Sequence[Line], passes: Sequence[Line]) -> Iterator[str]:
    """What does not belong together, each with the name of its file; nothing in a folder as it was written."""
    arms = [arm["name"] for arm in manifest.get("arms") or ()]
    of_pass: dict[Any, list[Line]] = {}
    for line in requests:
        of_pass.setdefault(_key(line), []).append(line)
    keys = [_key(line) for line in passes]
    yield from _twice("manifest.json: arm {}", arms)
    yield from _twice("passes.jsonl: {}", (f"{_name(key)}, index {key[2]}" for key in keys))
    yield from _twice("requests.jsonl: request_id {}", (line["request_id"] for line in requests))
    for key in [*of_pass, *keys]:
        if key[0] not in arms:
            yield f"{_name(key)}: manifest.json has no such arm"
    ended, finished = manifest["status"] in ENDED, set(keys)
    unfinished = [key for key in of_pass if key not in finished]
    if len(unfinished) > (0 if ended else 1):
        yield f"passes.jsonl: has no {_name(unfinished[0])}, and requests.jsonl tells of {len(of_pass[unfinished[0]]):,} requests of it"
    if ended:
        yield from _cut_out(arms, int(manifest["config"].get("repeats", 1)), keys)
    for line, key in zip(passes, keys, strict=True):
        yield from _of_pass(_name(key), line, of_pass.get(key, []))
    yield from _out_of_order(requests)
    if manifest["status"] == "complete":
        yield from _wrong_sums(requests)


def _cut_out(arms: Sequence[str], repeats: int, keys: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """Passes that an arm and repeat of a run lacks, and others have; without any, each arm and repeat."""
    there = {key[2:] for key in keys}
    for arm, repeat in product(arms, range(repeats)):
        own = {key[2:] for key in keys if key[:2] == (arm, repeat)}
        if not there:
            yield f"passes.jsonl: has no arm {arm}, repeat {repeat}"
        elif own != there:
            yield f"passes.jsonl: has no {_name((arm, repeat, *min(there - own)))}"


def _of_pass(name: str, line: Line, requests: Sequence[Line]) -> Iterator[str]:
    """What a pass says of its requests, and is otherwise."""
    failed = sum(item["error"] is not None for item in requests)
    if (len(requests), failed) != (line["requests"], line["failed"]):
        yield (
            f"requests.jsonl: has {len(requests):,} requests ({failed:,} failed) of {name}, and passes.jsonl tells of "
            f"{line['requests']:,} ({line['failed']:,})"
        )
        return
    waited = line.get("quiesce_s", 0.0)  # counters read and stores awaited, which the pass time leaves out; None: it has none then
    if waited is not None and any(item["last_token_s"] is not None for item in requests):
        begin = min(item["scheduled_s"] if item["sent_s"] is None else item["sent_s"] for item in requests)
        wall = max(item["end_s"] if item["last_token_s"] is None else item["last_token_s"] for item in requests) - begin
        if line["wall_s"] is None or wall > line["wall_s"] + waited + CLOSE_S:
            took = "no time" if line["wall_s"] is None else f"{line['wall_s']:.6f} s"
            yield f"requests.jsonl: the requests of {name} took {wall:.6f} s, and passes.jsonl says that the pass took {took}"
    prediction = line.get("prediction")
    if prediction is not None and any(item["position"] >= len(prediction["requests"]) for item in requests):
        yield f"passes.jsonl: prediction.requests of {name} lacks requests of it"
    if prediction is not None and len(prediction["ttft_ms"]) != len(prediction["requests"]):
        yield f"passes.jsonl: prediction.ttft_ms of {name} is not as long as prediction.requests"


def _out_of_order(requests: Sequence[Line]) -> Iterator[str]:
    for line in requests:
        sent, first, last, end = line["sent_s"] or 0.0, line["first_token_s"], line["last_token_s"], line["end_s"]
        begun = sent if first is None else first  # plain comparisons: there may be a million lines
        ended = begun if last is None else last
        if begun < sent - CLOSE_S or ended < begun - CLOSE_S or end < ended - CLOSE_S:
            yield f"requests.jsonl: {line['request_id']}: sent_s, first_token_s, last_token_s, end_s are not one after the other"
            return


def _wrong_sums(requests: Sequence[Line]) -> Iterator[str]:
    for line in requests:
        prompt, device = line["prompt_tokens"], line["cached_tokens_device"]
        host, computed = line["cached_tokens_host"], line["computed_tokens"]
        if prompt is None or device is None or host is None or computed is None:
            continue
        if device + host + computed != prompt:
            yield f"requests.jsonl: {line['request_id']}: {' + '.join(_TIERS)} is not prompt_tokens, and the run is marked complete"
            return


def _twice(what: str, names: Any) -> Iterator[str]:
    listed = list(names)
    if len(set(listed)) != len(listed):
        yield f"{what.format(Counter(listed).most_common(1)[0][0])} is there twice"


def _key(line: Line) -> tuple[Any, ...]:
    return line["arm"], line["repeat"], line["pass_index"], line["pass"]


def _name(key: Sequence[Any]) -> str:
    return f"arm {key[0]}, repeat {key[1]}, pass {key[3]}"
