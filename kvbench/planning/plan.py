"""``kvbench plan``: from a configuration to what the simulator says of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean, median

from kvbench.drawing.numbers import numbered
from kvbench.planning.advice import Case, advise, why_no_tier
from kvbench.planning.commands import commands_for
from kvbench.planning.config import PlanConfig
from kvbench.planning.curve import curve, times_ms, without_tier
from kvbench.planning.planned_workload import PlannedReading
from kvbench.planning.result import KV, Plan, PlannedPassRow
from kvbench.planning.sizes import Hosts, smallest_hosts, smallest_pools
from kvbench.planning.subject import Subject
from kvbench.runners.simulator.simulator import TierTokens

GIB_STEP = 100
"""``--host-gib`` is recommended in hundredths of a GiB."""


def make_plan(config: PlanConfig) -> Plan:
    """Plan for a workload of documents.

    Raises ``UsageError``: the model, the documents, the sizes or the run to calibrate with cannot be used; ``RunFailed``: the server does
    not answer.
    """
    subject = Subject(config)
    planned, pool, size = subject.planned, subject.pool, subject.size
    pools, hosts = smallest_pools(planned), smallest_hosts(planned, pool)
    given = config.given_host_tokens(subject.kv.bytes_per_token)
    host = subject.to_add(hosts) if given is None else given // planned.chunk
    reading = planned.read(pool, host)
    case = Case(subject, pools, hosts, host, reading)
    recommended = case.recommended if why_no_tier(case) is None else None
    host_gib = None if recommended is None else math.ceil(recommended.gib * GIB_STEP) / GIB_STEP
    return Plan(
        title=tuple(_title(subject, host)),
        profile=config.profile,
        kv=KV(subject.kv.bytes_per_token, subject.kv.formula, subject.model),
        server=None if subject.server is None else subject.server.server,
        documents=len(subject.workload.describe()["document_tokens"]),
        pool_documents=planned.documents_in(pool),
        working_set=size(subject.working_set, 1),
        pool=size(pool, planned.unit),
        headline=case.headline.pass_label,
        smallest_hit=None if pools.hits_at_all is None else size(pools.hits_at_all, planned.unit),
        smallest_all=case.larger_pool,
        watermark=planned.watermark,
        host_smallest=size(hosts.hits_everything, planned.chunk),
        host_exact=hosts.exact,
        host_keeps_all=size(hosts.keeps_everything, planned.chunk),
        host_recommended=recommended,
        host_gib=host_gib,
        host=size(host, planned.chunk),
        rates=subject.rates,
        passes=tuple(_pass_rows(subject, reading)),
        curve=curve(planned, pool, pools, host, subject.rates, subject.kv.bytes_per_token, config.pool_range),
        commands=()
        if recommended is None or host_gib is None
        else commands_for(config, subject.model, pool * planned.unit, recommended.tokens, host_gib),
        advice=tuple(advise(case)),
        notes=tuple(_notes(subject, hosts, reading)),
    )


def _pass_rows(subject: Subject, reading: PlannedReading) -> Iterator[PlannedPassRow]:
    """A row for each arm and pass."""
    for arm in ("none", "cpu"):
        for item, found in zip(subject.planned.passes, reading.passes, strict=True):
            requests = without_tier(found) if arm == "none" else list(found)
            times, base = times_ms(subject.rates, requests), times_ms(subject.rates, without_tier(found))
            tokens = TierTokens.total(requests)
            yield PlannedPassRow(
                arm=arm,
                pass_label=item.label,
                requests=len(requests),
                device=tokens.device,
                host=None if arm == "none" else tokens.host,
                computed=tokens.computed,
                p50_ms=None if times is None else median(times),
                mean_ms=None if times is None else fmean(times),
                speedup=median(base) / median(times) if times and base and median(times) > 0 else None,
            )


def _title(subject: Subject, host: int) -> Iterator[str]:
    config, described = subject.config, subject.workload.describe()
    lengths, pool = described["document_tokens"], subject.pool * subject.planned.unit
    span = f"{lengths[0]:,}" if len(set(lengths)) == 1 else f"{min(lengths):,} to {max(lengths):,}"
    yield "plan"
    yield f"profile {config.profile}"
    yield subject.model or f"{subject.kv.bytes_per_token:,} bytes a token"
    yield f"{numbered(len(lengths), 'document')} of {span} + {described['question_tokens']:,}"
    yield f"pool {pool:,}"
    yield f"cpu tier {host * subject.planned.chunk:,}"
    yield f"working set {subject.working_set / pool:.1f}x"


def _notes(subject: Subject, hosts: Hosts, reading: PlannedReading) -> Iterator[str]:
    """What the figures mean, where that is not plain."""
    config, kv = subject.config, subject.kv
    yield from kv.notes
    if subject.rates is not None:
        yield from subject.rates.notes
    longest = subject.longest.prompt_tokens + subject.longest.output_tokens
    if kv.max_tokens is not None and longest > kv.max_tokens:
        yield f"a request has {longest:,} tokens, and the model was made for {kv.max_tokens:,}"
    if not reading.exact:
        yield (
            "an estimate: this tier evicts, and LMCache evicts in the background, on a timer; what is found then depends on the moment. "
            f"A tier of {hosts.keeps_everything * subject.planned.chunk:,} tokens never evicts"
        )
    if config.profile == "engine" and config.kv_dtype == "auto" and config.bytes_per_token is None:
        yield "KV is counted in 16 bits; on a CPU kvbench's own engine keeps 32 (--kv-dtype float32)"
    if config.profile == "documents":
        yield "whole documents are found or lost; an engine keeps blocks, and finds parts of documents too"
