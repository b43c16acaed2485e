"""Whether to believe a run: reasons not to (exit code 4), and notes that are no fault but change how the table reads.

Every sentence that can name the option to try names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from kvbench.analysis.prediction import Agreement
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import Line, RunView
from kvbench.config.vllm import OPTIONAL_FIELDS
from kvbench.drawing.numbers import numbered
from kvbench.experiments.readings import ExperimentView
from kvbench.runs.calibration import fit_notes

STARTED = "server_started_ms"
"""Among the counters, and none: when the server's process started."""

CHECKED = ("request_id", "prompt_tokens_sent", "output_tokens", "sent_s")
"""The fields of a request line that reasons read beside those of the request table."""

LAG_TICK_S = 0.01
"""The client looks so often how late its event loop is."""

NOTICEABLE_LAG = 0.05
"""A client whose 99th percentile of lag is above this share of a pass's median TTFT may explain some of it."""


def reasons(view: ExperimentView) -> list[str]:
    """Why not to trust a run, one sentence each; empty if there is no reason."""
    return [
        *_failures(view),
        *_warm_first_pass(view, view.reading.prompts_share),
        *_wrong_tokens(view),
        *_backwards(view),
        *_restarted(view),
        *_foreign_traffic(view),
        *_faults(view),
        *view.reading.reasons(view),
        *_not_as_predicted(view.agreement),
    ]


def notes(view: ExperimentView) -> list[str]:
    """What a reader must know and what is no fault, one sentence each."""
    return [
        *unfinished(view),
        *view.run.skipped,
        *_simulated(view.info),
        *_left_out(view.info),
        *_unread(view),
        *view.reading.setup_notes(view),
        *_late_client(view),
        *view.reading.notes(view),
    ]


# Reasons.


def _failures(view: RunView) -> Iterator[str]:
    kinds: dict[str, list[Line]] = {}
    for line in view.requests:
        if line["error"] is not None:
            kinds.setdefault(line["error"]["kind"], []).append(line)
    for kind, lines in kinds.items():
        first = " ".join(str(lines[0]["error"]["message"]).split())
        yield f"{len(lines)} of {len(view.requests)} requests failed ({kind}); the first, {lines[0]['request_id']}: {first}"


def _warm_first_pass(view: RunView, prompts_share: bool) -> Iterator[str]:
    """A hit on a document's first reading in pass 0, unless documents may share their heads: the cache was not cold.

    The first reading, so that ``zipf`` as first pass, which reads a document twice, is checked as well. A prompt found whole is no hit, of
    which the last token is always computed: it was shared with another answer to it. A log claims no cold start.
    """
    info = view.info
    if info.of_log or info.own_documents or info.config.get("overlap", 0) > 0:
        return
    read: set[tuple[Any, ...]] = set()
    warm: dict[str, list[Line]] = {}
    for line in view.requests:
        if line["pass_index"] != 0 or _cached(line) == line["prompt_tokens"]:
            continue
        document = (line["arm"], line["repeat"], line["doc_id"])
        shares = prompts_share and line["position"] > 0
        if document not in read and not shares and _cached(line) > 0:
            warm.setdefault(line["arm"], []).append(line)
        read.add(document)
    for arm, lines in warm.items():
        yield (
            f"the first pass of arm {arm} was not cold: {numbered(len(lines), 'request')} met cached tokens of a document never read "
            f"before (the first, {lines[0]['request_id']}: {_cached(lines[0]):,})"
        )


def _wrong_tokens(view: RunView) -> Iterator[str]:
    """Counts that contradict each other, request by request."""
    asked = None if "ignore_eos" in view.info.without else view.info.output_tokens

    def parts(line: Line) -> list[int | None]:
        return [line["cached_tokens_device"], line["cached_tokens_host"], line["computed_tokens"], line["prompt_tokens"]]

    def unequal_sum(line: Line) -> bool:
        *tiers, prompt = parts(line)
        return None not in (*tiers, prompt) and sum(tiers) != prompt  # type: ignore[arg-type]

    checks: tuple[tuple[str, Callable[[Line], bool], Callable[[Line], str]], ...] = (
        (
            "tokens by tier (device + host + computed) do not sum to the prompt",
            unequal_sum,
            lambda line: "{} + {} + {} of {}".format(*parts(line)),
        ),
        (
            "the prompt as counted is not the prompt as sent",
            lambda line: line["prompt_tokens"] not in (None, line["prompt_tokens_sent"]),
            lambda line: f"{line['prompt_tokens']} of {line['prompt_tokens_sent']}",
        ),
        (
            "the output is not --output-tokens long",
            lambda line: line["error"] is None and asked is not None and line["output_tokens"] != asked,
            lambda line: f"{line['output_tokens']} of {asked}",
        ),
    )
    for what, wrong, how in checks:
        if found := [line for line in view.requests if wrong(line)]:
            yield f"{what}, in {numbered(len(found), 'request')} (the first, {found[0]['request_id']}: {how(found[0])})"


def _backwards(view: RunView) -> Iterator[str]:
    """Counters only grow within an arm and repeat; one that fell was reset or restarted, and its differences mean nothing."""
    fell: dict[tuple[str, str], str] = {}
    for line, before, after in _counters(view):
        for name in sorted((before.keys() & after.keys()) - {STARTED}):
            if after[name] < before[name]:
                where = f"repeat {line['repeat']}, pass {line['pass']}: from {before[name]:,} to {after[name]:,}"
                fell.setdefault((line["arm"], name), f"counter {name} of arm {line['arm']} went backwards, first in {where}")
    yield from fell.values()


def _restarted(view: RunView) -> Iterator[str]:
    for line, before, after in _counters(view):
        if after and STARTED in before and before[STARTED] != after.get(STARTED):
            yield f"the server of arm {line['arm']} was restarted in repeat {line['repeat']}, before the end of pass {line['pass']}"
            return


def _foreign_traffic(view: RunView) -> Iterator[str]:
    """Requests and prompt tokens that a server counted and that were not ours, within a pass or between two."""
    sent: dict[tuple[Any, ...], list[Line]] = {}
    for line in view.requests:
        if line["sent_s"] is not None:
            sent.setdefault(_pass(line), []).append(line)
    for line, before, after in _counters(view):
        within = after is line["counters_after"]
        ours = sent.get(_pass(line), []) if within else []
        finished = after.get("finished", 0) - before.get("finished", 0) - len(ours)
        tokens = after.get("prompt_tokens", 0) - before.get("prompt_tokens", 0) - sum(item["prompt_tokens_sent"] for item in ours)
        if before and (finished > 0 or tokens > 0):
            when = "in" if within else "before"
            yield (
                f"requests from other clients: {when} pass {line['pass']} of arm {line['arm']}, repeat {line['repeat']}, the server "
                f"counted {max(finished, 0):,} requests and {max(tokens, 0):,} prompt tokens that were not of this run"
            )
            return


def _counters(view: RunView) -> Iterator[tuple[Line, dict[str, int], dict[str, int]]]:
    """Each two readings that follow each other on one server, with the pass that the later one belongs to."""
    last: dict[tuple[str, int], dict[str, int]] = {}
    for line in view.passes:
        server = line["arm"], line["repeat"]
        for before, after in pairwise([last.get(server, {}), line["counters_before"], line["counters_after"]]):
            yield line, before, after
        last[server] = line["counters_after"]


def _pass(line: Line) -> tuple[Any, ...]:
    return line["arm"], line["repeat"], line["pass_index"]


def _faults(view: RunView) -> Iterator[str]:
    """What the runner saw that speaks against a pass."""
    for line in view.passes:
        for fault in line.get("faults") or ():
            yield f"arm {line['arm']}, repeat {line['repeat']}, pass {line['pass']}: {fault}"


def _not_as_predicted(agreement: Agreement | None) -> Iterator[str]:
    """Hits that an exact prediction did not foresee: the engine, the profile or the counting is at fault, and nobody knows which."""
    if agreement is None or not agreement.exact or not agreement.differences:
        return
    first = agreement.differences[0]
    yield (
        f"hits differ from the prediction (profile {agreement.profile}) in {len(agreement.differences)} of {agreement.requests} requests "
        f"(the first, {first.request_id}: device, host, computed {_tokens(first.measured)}, predicted {_tokens(first.predicted)})"
    )


def _tokens(tiers: tuple[int, int, int]) -> str:
    return " + ".join(f"{tokens:,}" for tokens in tiers)


# Notes.


def unfinished(view: ExperimentView) -> Iterator[str]:
    """That a run did not come to its end, and why."""
    info, of_repeat = view.info, view.reading.requests_of_repeat(view.info)
    of = "" if of_repeat is None else f" of {of_repeat * len(view.arms) * int(info.config.get('repeats', 1)):,}"
    if info.status == "interrupted":
        why = "; ".join(info.reasons)
        sent = sum(1 for line in view.requests if line["error"] is None or line["error"]["kind"] != "not_sent")
        yield f"interrupted after {sent:,}{of} requests" + (f": {why}" if why else "")
    if info.status == "running":
        yield f"still marked as running with {len(view.requests):,}{of} requests on disk: it was killed, or it is in progress"


def _left_out(info: RunInfo) -> Iterator[str]:
    """What is unknown as requests left out fields that a gateway refuses."""
    for name in info.without:
        yield f"--without {name}: {OPTIONAL_FIELDS.get(name, 'a field was left out')}"


def _unread(view: RunView) -> Iterator[str]:
    """Looks at a server's counters that failed, which is no fault of what was measured."""
    for line in view.passes:
        if unread := line.get("counters_unread"):
            yield (
                f"arm {line['arm']}, repeat {line['repeat']}, pass {line['pass']}: {numbered(len(unread), 'look')} at the server's "
                f"counters failed, so tokens by tier of the requests around are not known by them (the first: {unread[0]})"
            )


def _simulated(info: RunInfo) -> Iterator[str]:
    """What a prediction does not know."""
    if not info.simulated:
        return
    yield "this is a prediction, nothing was measured: each request alone, and what storing costs a first read left out"
    if info.concurrency != 1:
        yield "requests overlap in this setup, so their tokens are an estimate, and neither waiting nor shared steps are in their times"
    if info.rates is None:
        yield "no time is predicted without rates: --prefill-rate and --restore-rate, or --calibrate RUN_DIR"
        return
    fit, model = info.rates.get("fit") or {}, info.config.get("model")
    if fit:
        yield from fit_notes(fit["model"], fit["status"], model)


def _late_client(view: RunView) -> Iterator[str]:
    """A client so late that it may explain what was measured."""
    worst: tuple[float, str] | None = None
    for line in view.passes:
        lag = _lag_p99(line)
        ttft = None if lag is None else _median_ttft(view, line)
        if ttft and lag is not None and lag > NOTICEABLE_LAG * ttft and (worst is None or lag / ttft > worst[0]):
            worst = lag / ttft, f"arm {line['arm']}, pass {line['pass']}: its lag's p99 is {lag:.1f} ms, the TTFT's p50 {ttft:.1f} ms"
    if worst is not None:
        remedy = "free a core, or lower --concurrency or --rate"
        yield f"the client itself was late and may explain some of what was measured ({worst[1]}); {remedy}"


def _median_ttft(view: RunView, line: Line) -> float | None:
    times = [item["ttft_ms"] for item in view.requests if _pass(item) == _pass(line) and item["ttft_ms"] is not None]
    return float(np.median(times)) if times else None


def _lag_p99(line: Line) -> float | None:
    """The 99th percentile of the client's lag in ms: only lags above a millisecond were kept, of one look every tick."""
    lags = line.get("client_lags_ms")
    if lags is None or not line["wall_s"]:
        return None
    beyond = int(line["wall_s"] / LAG_TICK_S * 0.01)
    return sorted(lags, reverse=True)[beyond] if len(lags) > beyond else 0.0


def _cached(line: Line) -> int:
    """Cached tokens of a request; unknown counts as none here, where only a known hit is a fault."""
    return (line["cached_tokens_device"] or 0) + (line["cached_tokens_host"] or 0)
