"""The plan of a trace, for a terminal, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from kvbench.drawing.layout import MARKDOWN, NO_TIER, TERMINAL, UNKNOWN, Cell, Style, escaped, table, with_rest, wrapped
from kvbench.drawing.numbers import per_cent
from kvbench.planning.trace_plan import Arm, AtPool, Pool, TracePlan
from kvbench.planning.windows import Window

SHOWN_WINDOWS = 48
_share = partial(per_cent, digits=2)


def terminal(plan: TracePlan) -> str:
    """Plain text in 80 columns."""
    parts = ["\n".join(wrapped(line) for line in _title(plan))]
    parts += [f"{wrapped(head)}\n{drawn}" for head, drawn in _tables(plan, TERMINAL)]
    parts += [wrapped(sentence) for sentence in _sentences(plan)]
    return "\n\n".join(parts) + "\n"


def markdown(plan: TracePlan) -> str:
    """The same as Markdown."""
    parts = [f"**{escaped(' · '.join(_title(plan)))}**"]
    parts += [f"{escaped(head)}\n\n{drawn}" for head, drawn in _tables(plan, MARKDOWN)]
    return "\n\n".join([*parts, *map(escaped, _sentences(plan))]) + "\n"


def _title(plan: TracePlan) -> Iterator[str]:
    span = "" if plan.span_s is None else f" in {_duration(plan.span_s)}"
    yield f"trace {plan.trace} | {plan.requests:,} requests{span}"
    prompt, output = plan.prompt_tokens / plan.requests, plan.output_tokens / plan.requests
    yield f"{prompt:,.0f} + {output:,.0f} tokens (mean), longest {plan.longest_tokens:,}"
    model = "" if plan.model is None else f"{plan.model}: "
    yield f"{plan.accesses:,} accesses to {plan.distinct:,} blocks of {plan.block_size} | {model}{plan.bytes_per_token:,} bytes a token"


def _tables(plan: TracePlan, style: Style) -> Iterator[tuple[str, str]]:
    """Each table with what stands over it."""
    shown = [pool for pool in plan.curve if _is_round(pool.blocks) and pool.tokens >= plan.longest_tokens]  # a smaller one cannot serve it
    yield f"Block accesses that hit, by device pool (LRU); without a limit {_share(plan.bound)}", _pools([*shown, plan.curve[-1]], style)
    if plan.bound:
        yield "Smallest pool for a share of what a pool without a limit hits", _pools(plan.smallest, style)
    if plan.at_pool is not None:
        yield f"Prompt tokens by tier, pool {plan.at_pool.device_tokens:,}, profile {plan.profile}", _arms(plan, plan.at_pool, style)
    if plan.windows:
        tiers = "; of prompt tokens: from the device, from the host" if plan.at_pool is not None else ""
        head = f"By windows of {plan.window_s:g} s (of block accesses: read again from within the window, from before it{tiers})"
        yield head, _windows(plan, style)


def _pools(pools: Iterable[Pool], style: Style) -> str:
    rows: list[list[Cell]] = [[pool.tokens, f"{pool.gib:,.2f}", pool.blocks, _share(pool.hit_rate), _share(pool.share)] for pool in pools]
    return table(["pool tokens", "GiB", "blocks", "hit", "of the bound"], 0, rows, style)


def _arms(plan: TracePlan, at_pool: AtPool, style: Style) -> str:
    def cells(arm: Arm) -> list[Cell]:
        tier = arm.host_tokens
        size: list[Cell] = [NO_TIER, NO_TIER] if tier is None else [tier, f"{tier * plan.bytes_per_token / 2**30:,.2f}"]
        host = NO_TIER if tier is None else arm.host
        return [arm.name, *size, arm.device, host, arm.computed, _share((arm.device + arm.host) / arm.prompt)]

    return table(["arm", "tier tokens", "GiB", "device", "host", "computed", "hit"], 1, map(cells, at_pool.arms), style)


def _windows(plan: TracePlan, style: Style) -> str:
    def cells(window: Window) -> list[Cell]:
        hits = [_ratio(part, window.accesses) for part in (window.within, window.before)]
        found = [_ratio(part, window.prompt) for part in (window.device, window.host)]
        return [window.start_s, window.requests, window.accesses, *hits, *found]

    tiers = ["device", "host"] if plan.at_pool is not None else [None, None]
    drawn = table(["from s", "requests", "blocks", "within", "before", *tiers], 0, map(cells, plan.windows[:SHOWN_WINDOWS]), style)
    rest = len(plan.windows) - SHOWN_WINDOWS
    return drawn if rest <= 0 else with_rest(drawn, f"... and {rest:,} windows more (--json has all)", style)


def _sentences(plan: TracePlan) -> Iterator[str]:
    if plan.left_out:
        yield f"{_requests(plan.left_out)} left out, with prompts above --max-prompt-tokens."
    if not plan.bound:
        yield "No prompt begins as an earlier one did, so no cache of any size hits anything, and no tier can help."
        return
    if plan.reuse_age_s is not None:
        half, most, nearly = (_duration(age) for age in plan.reuse_age_s)
        yield f"A block that comes again does so after {half} (median), {most} (p90), {nearly} (p99)."
    if plan.lru is not None and plan.at_pool is not None and plan.optimum is not None:
        yield from _at_pool(plan, plan.lru, plan.at_pool, plan.optimum)
    yield (
        "Requests alone and in order; those that run at the same time take room that is not counted here. Answers take room, and are never "
        "read again: a trace does not say what was answered."
    )


def _at_pool(plan: TracePlan, lru: Pool, at_pool: AtPool, optimum: float) -> Iterator[str]:
    yield (
        f"In {lru.blocks:,} blocks LRU hits {_share(lru.hit_rate)} of block accesses, and no order of eviction could hit more than "
        f"{_share(optimum)}."
    )
    alone, tiered = at_pool.arms
    gain = (tiered.device + tiered.host - alone.device) / alone.prompt
    if gain > 0:
        left = 1 - tiered.computed / alone.computed
        yield f"The cpu tier saves computing {_share(gain)} of all prompt tokens, {_share(left)} of what the pool leaves to compute."
    else:
        yield "The cpu tier saves nothing: what it holds is in the pool too, or has left it before it is read again."
    if not tiered.exact:
        yield "The tier's figures are an estimate: LMCache evicts in the background, at a moment that nobody knows."
    if at_pool.too_large:
        yield f"{_requests(at_pool.too_large)} left out of the tiers: each is larger than the pool, and a server refuses it."


def _is_round(blocks: int) -> bool:
    digits = str(blocks)
    return digits[0] in "125" and not digits[1:].strip("0")


def _ratio(part: int | None, whole: int | None) -> str:
    return UNKNOWN if part is None or not whole else _share(part / whole)


def _requests(count: int) -> str:
    return "1 request was" if count == 1 else f"{count:,} requests were"


def _duration(seconds: float) -> str:
    """Seconds below two minutes, then minutes, hours, days."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.3g} s"
