"""The report of a plan: for a terminal, as Markdown, as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.drawing.layout import MARKDOWN, NO_TIER, TERMINAL, UNKNOWN, Count, Style, escaped, fitting, packed, wrapped
from kvbench.drawing.numbers import grouped_decimal, per_cent, times
from kvbench.planning.result import CurveRow, KVAmount, Plan, PlannedPassRow


def terminal(plan: Plan) -> str:
    """Plain text in 80 columns."""
    parts = ["\n".join(packed(plan.title)) + "\n" + wrapped(_kv_line(plan))]
    parts += [f"{wrapped(heading)}\n{table}" for heading, table in _tables(plan, TERMINAL)]
    parts += [wrapped(line) for line in (_rates_line(plan),) if line]
    parts.append("\n".join(wrapped(sentence) for sentence in plan.advice))
    parts += [f"{command.what}:\n  {command.line}" for command in plan.commands]
    parts += ["\n".join(wrapped(note, "note: ") for note in plan.notes)] if plan.notes else []
    return "\n\n".join(parts) + "\n"


def markdown(plan: Plan) -> str:
    """The same report, its tables as Markdown tables."""
    parts = [f"**{escaped(' · '.join(plan.title))}**", escaped(_kv_line(plan))]
    for heading, table in _tables(plan, MARKDOWN):
        parts += [escaped(heading), table]
    parts += [escaped(line) for line in (_rates_line(plan), *plan.advice) if line]
    parts += [f"{escaped(command.what)}:\n\n```\n{command.line}\n```" for command in plan.commands]
    parts += ["\n".join(f"- note: {escaped(note)}" for note in plan.notes)] if plan.notes else []
    return "\n\n".join(parts) + "\n"


def _kv_line(plan: Plan) -> str:
    server = plan.server
    asked = "" if server is None else f" Server {server.url}: {server.model}, vLLM {server.version or UNKNOWN}."
    return f"A token's KV takes {plan.kv.bytes_per_token:,} bytes ({plan.kv.formula}).{asked}"


def _rates_line(plan: Plan) -> str:
    """What the times come from; empty where there are none, with what would give them."""
    rates = plan.rates
    if rates is None:
        return "No times without rates: --prefill-rate and --restore-rate, or --calibrate RUN_DIR."
    text = f"TTFT = {rates.overhead_ms:.1f} ms + computed ÷ {rates.prefill:,.0f} + loaded ÷ {rates.restore:,.0f} tokens/s"
    if rates.fitted_to is None or rates.median_error is None or rates.worst_error is None:
        return f"{text}, as given: an estimate."
    errors = f"median {rates.median_error * 100:.1f} %, worst {rates.worst_error * 100:.0f} %"
    return f"{text}, fitted to {rates.fitted_to} (relative error: {errors}): an estimate."


def _tables(plan: Plan, style: Style) -> Iterator[tuple[str, str]]:
    """Each table with what stands over it."""
    yield "Sizes", fitting(["", "", "tokens", "GiB"], 2, lambda count: list(_size_cells(plan, count)), style)
    timed = plan.rates is not None
    header = ["arm", "pass", "n", *(["TTFT p50", "mean", "vs none"] if timed else []), "device", "host", "computed"]
    yield "Predicted tokens by tier", fitting(header, 2, lambda count: [_pass_cells(row, count, timed) for row in plan.passes], style)
    header = ["", "pool", "GiB", "none", "cpu", *(["p50 none", "p50 cpu"] if timed else []), "LRU", "best"]
    shown = [row for row in plan.curve if row.shown]
    yield _curve_heading(plan, timed), fitting(header, 1, lambda count: [_curve_cells(row, plan, count, timed) for row in shown], style)


def _curve_heading(plan: Plan, timed: bool) -> str:
    times_too = " and its predicted TTFT p50 (ms)" if timed else ""
    return (
        f"By size of the pool: what pass {plan.headline} finds without a tier and with it{times_too}; "
        "what all passes find without, under LRU and with the best order of eviction"
    )


def _size_cells(plan: Plan, count: Count) -> Iterator[list[str]]:
    def line(what: str, remark: str, size: KVAmount) -> list[str]:
        return [what, remark, count(size.tokens), f"{size.gib:,.2f}"]

    def units(size: KVAmount, name: str) -> str:
        return "" if plan.profile == "documents" else f"{size.units:,} {name}"

    holds = f"holds {_documents(plan.pool_documents)}"
    yield line("working set", _documents(plan.documents), plan.working_set)
    yield line("device pool", ", ".join(part for part in (units(plan.pool, "blocks"), holds) if part), plan.pool)
    if plan.smallest_hit is not None and plan.smallest_all is not None:
        yield line("smallest pool", f"{plan.headline} hits at all", plan.smallest_hit)
        yield line("", f"{plan.headline} hits everything", plan.smallest_all)
    if plan.host_recommended is None:
        return
    yield line("smallest cpu tier", "finds everything" if plan.host_exact else "finds everything, estimate", plan.host_smallest)
    if plan.host_keeps_all != plan.host_smallest:
        yield line("", "never evicts", plan.host_keeps_all)
    evicts = f", evicts from {plan.watermark * 100:.0f} %" if plan.watermark < 1 else ""
    yield line("cpu tier to add", f"--host-gib {plan.host_gib:g}{evicts}", plan.host_recommended)


def _pass_cells(row: PlannedPassRow, count: Count, timed: bool) -> list[str]:
    shown = [grouped_decimal(row.p50_ms), grouped_decimal(row.mean_ms), times(row.speedup)] if timed else []
    host = NO_TIER if row.host is None else count(row.host)
    return [row.arm, row.pass_label, count(row.requests), *shown, count(row.device), host, count(row.computed)]


def _curve_cells(row: CurveRow, plan: Plan, count: Count, timed: bool) -> list[str]:
    found = next(item for item in row.passes if item.pass_label == plan.headline)
    shown = [grouped_decimal(found.none_p50_ms), grouped_decimal(found.cpu_p50_ms)] if timed else []
    names = ((plan.smallest_all, "hits all"), (plan.smallest_hit, "hits"), (plan.pool, "this"))
    name = next((name for size, name in reversed(names) if size is not None and size.units == row.pool.units), "")
    rates = [per_cent(found.none_rate), per_cent(found.cpu_rate)]
    return [name, count(row.pool.tokens), f"{row.pool.gib:,.2f}", *rates, *shown, per_cent(row.lru_rate), per_cent(row.best_rate)]


def _documents(count: int) -> str:
    return f"{count:,} document{'' if count == 1 else 's'}"
