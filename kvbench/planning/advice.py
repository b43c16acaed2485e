"""Sentences that say what to do: whether to add a tier, how large, and what else would help. Each case has its own reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kvbench.drawing.numbers import per_cent
from kvbench.planning.curve import curve_pass, times_ms, without_tier
from kvbench.planning.planned_workload import PlannedReading
from kvbench.planning.result import CurvePass, KVAmount
from kvbench.planning.sizes import Hosts, Pools
from kvbench.planning.subject import Subject


class Case:
    """What the simulations found of a subject; tokens and shares are of all passes together, unless they say otherwise."""

    def __init__(self, subject: Subject, pools: Pools, hosts: Hosts, host: int, reading: PlannedReading) -> None:
        """``host``: the tier that ``reading`` was predicted with, in chunks."""
        planned, pool, rates = subject.planned, subject.pool, subject.rates
        requests = list(chain.from_iterable(reading.passes))
        prompt, best = sum(map(sum, requests)), planned.best_hits(pool)
        self.fits = subject.working_set <= pool * planned.unit
        self.chunk_tokens = planned.chunk
        self.pool, self.tier = reading.device_hits, reading.hits
        """Tokens found without the tier, and with it."""
        self.unlimited = planned.read(planned.roomy_pool, None).device_hits
        """Tokens found in a pool without limits."""
        self.any_tier = planned.read(pool, hosts.keeps_everything).hits
        """Tokens found with a tier that keeps everything."""
        self.slower = sum(times_ms(rates, requests) or []) > sum(times_ms(rates, without_tier(requests)) or [])
        """Whether all requests together take longer with the tier."""
        self.headline = curve_pass(planned, reading, planned.headline, rates)
        """The pass that speaks for re-reading."""
        self.recommended = subject.size(subject.to_add(hosts), planned.chunk)
        """The tier to add, if one is to be added."""
        given = subject.config.given_host_tokens(subject.kv.bytes_per_token)
        self.given = None if given is None else subject.size(host, planned.chunk)
        """``None``: the recommended one was predicted with."""
        self.larger_pool = None if pools.hits_everything is None else subject.size(pools.hits_everything, planned.unit)
        """In which the headline pass hits everything without a tier."""
        self.lru = reading.device_hits / prompt
        self.best = None if best is None else best / prompt
        """Shares of the prompt tokens found in this pool; under the best order of eviction, ``None`` where not known."""


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
            f"LRU finds {per_cent(case.lru)} of all passes' prompt tokens in this pool; no order of eviction finds more than "
            f"{per_cent(case.best)} (Belady's optimum, which knows the future)."
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
    none, cpu = per_cent(headline.none_rate), per_cent(headline.cpu_rate)
    found = f"in pass {headline.pass_label} the pool finds {none} of the prompt tokens, pool and tier {cpu}"
    if headline.none_p50_ms is None or headline.cpu_p50_ms is None:
        return found
    return f"{found}; predicted TTFT p50 {headline.none_p50_ms:,.1f} ms without it, {headline.cpu_p50_ms:,.1f} ms with it"


def _size(size: KVAmount) -> str:
    return f"{size.tokens:,} tokens ({size.gib:,.2f} GiB)"
