"""The report of a plan: for a terminal, as Markdown, as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.drawing.layout import MARKDOWN, NO_TIER, TERMINAL, UNKNOWN, Cell, Style, escaped, packed, table, wrapped
from kvbench.drawing.numbers import grouped_decimal, numbered, per_cent, times
from kvbench.planning.result import CurveRow, KVAmount, Plan, PlannedPassRow


def terminal(plan: Plan) -> str:
    """Plain text in 80 to 120 columns."""
    parts = ["\n".join(packed(plan.title)) + "\n" + wrapped(_kv_line(plan))]
    parts += [f"{wrapped(heading)}\n{drawn}" for heading, drawn in _tables(plan, TERMINAL)]
    parts += [wrapped(line) for line in (_rates_line(plan),) if line]
    parts.append("\n".join(wrapped(sentence) for sentence in plan.advice))
    parts += [f"{command.what}:\n  {command.line}" for command in plan.commands]
    parts += ["\n".join(wrapped(note, "note: ") for note in plan.notes)] if plan.notes else []
    return "\n\n".join(parts) + "\n"


def markdown(plan: Plan) -> str:
    """The same report, its tables as Markdown tables."""
    parts = [f"**{escaped(' · '.join(plan.title))}**", escaped(_kv_line(plan))]
    for heading, drawn in _tables(plan, MARKDOWN):
        parts += [escaped(heading), drawn]
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
    yield "Sizes", table(["", "", "tokens", "GiB"], 2, _size_cells(plan), style)
    names = ("TTFT p50", "mean", "vs none", "p50 none", "p50 cpu")
    p50, mean, speedup, none, cpu = names if plan.rates is not None else [None] * len(names)
    header = ["arm", "pass", "n", p50, mean, speedup, "device", "host", "computed"]
    yield "Predicted tokens by tier", table(header, 2, map(_pass_cells, plan.passes), style)
    header = ["", "pool", "GiB", "none", "cpu", none, cpu, "LRU", "best"]
    yield _curve_heading(plan), table(header, 1, [_curve_cells(row, plan) for row in plan.curve if row.shown], style)


def _curve_heading(plan: Plan) -> str:
    times_too = "" if plan.rates is None else " and its predicted TTFT p50 (ms)"
    return (
        f"By size of the pool: what pass {plan.headline} finds without a tier and with it{times_too}; "
        "what all passes find without, under LRU and with the best order of eviction"
    )


def _size_cells(plan: Plan) -> Iterator[list[Cell]]:
    def line(what: str, remark: str, size: KVAmount) -> list[Cell]:
        return [what, remark, size.tokens, f"{size.gib:,.2f}"]

    def units(size: KVAmount, name: str) -> str:
        return "" if plan.profile == "documents" else f"{size.units:,} {name}"

    holds = f"holds {numbered(plan.pool_documents, 'document')}"
    yield line("working set", numbered(plan.documents, "document"), plan.working_set)
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


def _pass_cells(row: PlannedPassRow) -> list[Cell]:
    shown = [grouped_decimal(row.p50_ms), grouped_decimal(row.mean_ms), times(row.speedup)]
    return [row.arm, row.pass_label, row.requests, *shown, row.device, NO_TIER if row.host is None else row.host, row.computed]


def _curve_cells(row: CurveRow, plan: Plan) -> list[Cell]:
    found = next(item for item in row.passes if item.pass_label == plan.headline)
    names = ((plan.smallest_all, "hits all"), (plan.smallest_hit, "hits"), (plan.pool, "this"))
    name = next((name for size, name in reversed(names) if size is not None and size.units == row.pool.units), "")
    rates = [per_cent(found.none_rate), per_cent(found.cpu_rate)]
    shown = [grouped_decimal(found.none_p50_ms), grouped_decimal(found.cpu_p50_ms)]
    return [name, row.pool.tokens, f"{row.pool.gib:,.2f}", *rates, *shown, per_cent(row.lru_rate), per_cent(row.best_rate)]
