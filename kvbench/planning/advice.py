"""Sentences that say what to do: whether to add a tier, how large, and what else would help. Each case has its own reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvbench.planning.result import CurvePass, KVAmount


@dataclass(frozen=True, slots=True)
class Case:
    """What the simulations found; tokens and shares are of all passes together, unless they say otherwise.

    Attributes:
        fits: whether the pool holds the whole working set.
        unlimited, pool: tokens found in a pool without limits, and in this one.
        tier, any_tier: tokens found with the tier that was predicted with, and with one that keeps everything.
        slower: whether all requests together take longer with the tier.
        headline: the pass that speaks for re-reading, with the tier that was predicted with.
        chunk_tokens: what the tier stores at once.
        recommended: the tier to add, if one is to be added.
        given: the tier the user gave; ``None``: the recommended one was predicted with.
        larger_pool: in which the headline pass hits everything without a tier.
        lru, best: shares of the prompt tokens found in this pool; ``best`` under the best order of eviction, ``None`` where not known.
    """

    fits: bool
    unlimited: int
    pool: int
    tier: int
    any_tier: int
    slower: bool
    headline: CurvePass
    chunk_tokens: int
    recommended: KVAmount
    given: KVAmount | None
    larger_pool: KVAmount | None
    lru: float
    best: float | None


def why_no_tier(case: Case) -> str | None:
    """The reason not to add a tier; ``None``: there is none."""
    if case.unlimited == 0:
        return "No tier: nothing is read again, so there is nothing to load. A tier would only add its stores to the first reading."
    if case.pool >= case.unlimited:
        fits = "it fits, and " if case.fits else ""
        return f"No tier: {fits}the pool finds everything that is read again; a tier would have nothing to give."
    if case.any_tier <= case.pool:
        return (
            f"No tier: what the pool loses and is read again fills no chunk of {case.chunk_tokens:,} tokens, so the tier could not keep it."
        )
    if case.slower:
        return "No tier: at these rates loading takes longer than computing the same tokens."
    return None


def advise(case: Case) -> Iterator[str]:
    """What to do, a sentence each."""
    reason = why_no_tier(case)
    if reason is not None:
        yield reason
        return
    yield f"{_tier(case)}: {_effect(case.headline)}."
    if case.larger_pool is not None:
        yield f"Without a tier the pool would need {_size(case.larger_pool)} to find everything in pass {case.headline.pass_label}."
    if case.best is not None and case.best > case.lru:
        yield (
            f"LRU finds {_share(case.lru)} of all passes' prompt tokens in this pool; no order of eviction finds more than "
            f"{_share(case.best)} (Belady's optimum, which knows the future)."
        )


def _tier(case: Case) -> str:
    if case.given is None:
        return f"Add a cpu tier of {_size(case.recommended)}"
    if case.tier >= case.any_tier and case.given.tokens < case.recommended.tokens:
        return f"A cpu tier of {_size(case.given)} may be enough, but evicts on the way; {_size(case.recommended)} is for certain"
    if case.tier >= case.any_tier:
        return f"A cpu tier of {_size(case.given)} is enough; {_size(case.recommended)} would do"
    return f"A cpu tier of {_size(case.given)} is too small, {_size(case.recommended)} would hold the work"


def _effect(headline: CurvePass) -> str:
    none, cpu = _share(headline.none_rate), _share(headline.cpu_rate)
    found = f"in pass {headline.pass_label} the pool finds {none} of the prompt tokens, pool and tier {cpu}"
    if headline.none_p50_ms is None or headline.cpu_p50_ms is None:
        return found
    return f"{found}; predicted TTFT p50 {headline.none_p50_ms:,.1f} ms without it, {headline.cpu_p50_ms:,.1f} ms with it"


def _size(size: KVAmount) -> str:
    return f"{size.tokens:,} tokens ({size.gib:,.2f} GiB)"


def _share(rate: float) -> str:
    return f"{rate * 100:.1f} %"
