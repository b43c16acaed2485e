"""Checks of runs whose arms are tiers: tiers that gave nothing although they must, and setups in which none can."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import Line, RunView
from kvbench.workloads.passes import IN_ORDER


def tier_never_hit(view: RunView) -> Iterator[str]:
    """A host tier that holds everything and gives nothing to a pass that reads again in order what the device pool has lost."""
    info = view.info
    if info.simulated or info.concurrency != 1 or info.reuse < 1 or info.fits or not info.document_tokens:
        return
    predicted = {(line["arm"], line["pass_index"]) for line in view.passes if (line.get("prediction") or {}).get("host") == 0}
    chunk, question, output = info.chunk_tokens, info.question_tokens, info.output_tokens
    if chunk is None or question is None or output is None or min(info.document_tokens) < 2 * chunk:
        return
    needed = chunk * sum(_chunks_written(tokens, info) for tokens in info.document_tokens)
    for arm in view.arms:
        size = info.host_tokens.get(arm)
        if size is None or size < needed:
            continue
        for label, lines in _in_order_again(view, arm):
            known = [line for line in lines if None not in (line["cached_tokens_host"], line["computed_tokens"])]
            # The device pool may hold all but a little of each document; then no whole chunk is missing.
            missed = any(line["computed_tokens"] >= question + output + 2 * chunk for line in known)
            excused = (arm, lines[0]["pass_index"]) in predicted  # a tier that evicts from a watermark on holds less than its size
            if missed and not excused and not any(line["cached_tokens_host"] for line in known):
                yield f"the {arm} tier ({size:,}) holds all that is read ({needed:,}) and gave nothing to {label}, although it must"


def silent_tier(view: RunView) -> Iterator[str]:
    """A tier of unknown size, or requests that overlap: then no single pass must hit, but one that never does says nothing of a tier."""
    info = view.info
    if info.simulated or info.fits or info.reuse < 1 or not info.working_set:
        return
    for arm in view.arms:
        size = info.host_tokens.get(arm)
        again = [
            line for line in view.passes if line["arm"] == arm and line["pass_index"] > 0 and line.get("cached_tokens_host") is not None
        ]
        known_and_alone = size is not None and info.concurrency == 1  # tier_never_hit knows better
        if not view.has_tier(arm) or not again or known_and_alone or (size is not None and size < info.working_set):
            continue
        if not any(line["cached_tokens_host"] for line in again) and any(line["computed_tokens"] for line in again):
            yield f"the {arm} tier gave nothing in the whole run: it does not work, or is far too small; its server's log may tell"


def _chunks_written(document: int, info: RunInfo) -> int:
    """The most chunks a tier gets of one document over the run: its own once, those with a question or output in each pass."""
    chunk = info.chunk_tokens or 1
    own = document // chunk
    whole = (document + (info.question_tokens or 0) + (info.output_tokens or 0)) // chunk
    return own + (whole - own) * len(info.config.get("passes") or ())


def _in_order_again(view: RunView, arm: str) -> Iterator[tuple[str, list[Line]]]:
    """The passes of an arm, successful requests only, that read in order and follow a pass in order."""
    passes: dict[int, list[Line]] = {}
    for line in view.requests:
        if line["arm"] == arm and line["error"] is None:
            passes.setdefault(line["pass_index"], []).append(line)
    for index in sorted(passes):
        before = passes.get(index - 1)
        if before and before[0]["pass"] in IN_ORDER and passes[index][0]["pass"] in IN_ORDER:
            yield f"pass {index} ({passes[index][0]['pass']})", passes[index]


def not_predicted(view: RunView) -> Iterator[str]:
    """A server whose cache semantics nobody knows."""
    if view.info.profile is None and view.passes and not view.info.of_log and not any(line.get("prediction") for line in view.passes):
        yield "hits are not predicted: the cache semantics of this server are not known"


def nothing_to_show(info: RunInfo, to_overflow: str) -> Iterator[str]:
    """Setups in which no tier can make a difference."""
    if info.fits:
        sizes = f"the working set ({info.working_set:,}) fits the pool ({info.device_tokens:,})"
        yield f"fits: {sizes}: no tier can show here; {to_overflow}"
    passes = info.config.get("passes") or ()
    if len(passes) == 1:
        yield "there is one pass, so no document is read again; add a pass (--passes sequential,repeat)"
    elif info.reuse == 0:
        yield "nothing is read again (--reuse 0), so no later pass can hit; raise --reuse"


def tier_sizes(view: RunView) -> Iterator[str]:
    """What a small host tier cannot do. The smallest size that is a problem is the one said."""
    info = view.info
    chunk, documents = info.chunk_tokens, info.document_tokens
    for arm in view.arms:
        size = info.host_tokens.get(arm)
        if size is None:
            continue
        remedy = "raise --host-tokens or --host-gib"
        if size == 0:
            yield f"the {arm} tier has size zero and stores nothing; {remedy}"
        elif chunk is not None and size < chunk:
            small = f"the {arm} tier ({size:,}) is smaller than one chunk ({chunk:,}) and stores nothing"
            yield f"{small}; {remedy}, or lower --chunk-tokens"
        elif documents and size < max(documents):
            yield (
                f"the {arm} tier ({size:,}) is smaller than the longest document ({max(documents):,}): "
                f"its chunks evict each other, so nothing of it can hit; {remedy}"
            )
        elif chunk is not None and size < sum(tokens // chunk * chunk for tokens in documents) and _each_its_own(view, arm):
            yield (
                f"the {arm} tier ({size:,}) is smaller than the working set ({info.working_set:,}): read again in order, "
                f"each document is evicted just before its turn; {remedy}"
            )


def _each_its_own(view: RunView, arm: str) -> bool:
    """Whether the documents need their sizes' sum: they share no head, and no reading in order has shown otherwise by a hit."""
    hit = any(line["cached_tokens_host"] for _, lines in _in_order_again(view, arm) for line in lines)
    return not hit and view.info.config.get("overlap", 0) == 0
