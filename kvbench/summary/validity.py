"""Whether to believe a run: reasons not to (exit code 4), and notes that are no fault but change how the table reads.

Every sentence that can name the option to try names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kvbench.analysis.prediction import Agreement
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import Line, RunView
from kvbench.experiments.readings import ExperimentView
from kvbench.runs.calibration import fit_notes
from kvbench.summary import servers


def reasons(view: ExperimentView) -> list[str]:
    """Why not to trust a run, one sentence each; empty if there is no reason."""
    return [
        *_failures(view),
        *_warm_first_pass(view, view.reading.prompts_share),
        *_wrong_tokens(view),
        *servers.reasons(view),
        *view.reading.reasons(view),
        *_not_as_predicted(view.agreement),
    ]


def notes(view: ExperimentView) -> list[str]:
    """What a reader must know and what is no fault, one sentence each."""
    return [
        *_status(view, view.reading.requests_of_repeat(view.info)),
        *view.run.skipped,
        *_simulated(view.info),
        *view.reading.setup_notes(view),
        *servers.notes(view),
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
            f"the first pass of arm {arm} was not cold: {_requests(len(lines))} met cached tokens of a document never read before "
            f"(the first, {lines[0]['request_id']}: {_cached(lines[0]):,})"
        )


def _wrong_tokens(view: RunView) -> Iterator[str]:
    """Counts that contradict each other, request by request."""
    asked = view.info.output_tokens

    def parts(line: Line) -> list[int | None]:
        return [line["cached_tokens_device"], line["cached_tokens_host"], line["computed_tokens"], line["prompt_tokens"]]

    def unequal_sum(line: Line) -> bool:
        *tiers, prompt = parts(line)
        return None not in (*tiers, prompt) and sum(tiers) != prompt  # type: ignore[arg-type]

    def resized(line: Line) -> bool:
        return line["prompt_tokens"] not in (None, line["prompt_tokens_sent"])

    def wrong_output(line: Line) -> bool:
        return line["error"] is None and asked is not None and line["output_tokens"] != asked

    def sums(line: Line) -> str:
        return "{} + {} + {} of {}".format(*parts(line))

    yield from _lines(view, unequal_sum, "tokens by tier (device + host + computed) do not sum to the prompt", sums)
    yield from _lines(
        view,
        resized,
        "the prompt as counted is not the prompt as sent",
        lambda line: f"{line['prompt_tokens']} of {line['prompt_tokens_sent']}",
    )
    yield from _lines(
        view,
        wrong_output,
        "the output is not --output-tokens long",
        lambda line: f"{line['output_tokens']} of {asked}",
    )


def _lines(view: RunView, wrong: Callable[[Line], bool], what: str, how: Callable[[Line], str]) -> Iterator[str]:
    """One sentence for all requests for which ``wrong`` holds."""
    found = [line for line in view.requests if wrong(line)]
    if found:
        yield f"{what}, in {_requests(len(found))} (the first, {found[0]['request_id']}: {how(found[0])})"


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


def _status(view: RunView, of_repeat: int | None) -> Iterator[str]:
    info = view.info
    of = "" if of_repeat is None else f" of {of_repeat * len(view.arms) * int(info.config.get('repeats', 1)):,}"
    if info.status == "interrupted":
        why = "; ".join(info.reasons)
        sent = sum(1 for line in view.requests if line["error"] is None or line["error"]["kind"] != "not_sent")
        yield f"interrupted after {sent:,}{of} requests" + (f": {why}" if why else "")
    if info.status == "running":
        yield f"still marked as running with {len(view.requests):,}{of} requests on disk: it was killed, or it is in progress"


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


def _cached(line: Line) -> int:
    """Cached tokens of a request; unknown counts as none here, where only a known hit is a fault."""
    return (line["cached_tokens_device"] or 0) + (line["cached_tokens_host"] or 0)


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"
