"""Whether to believe a run: reasons not to (exit code 4), and notes that are no fault but change how the table reads.

Every sentence that can name the option to try names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kvbench.analysis.prediction import compare
from kvbench.analysis.run_info import IN_ORDER, Setup, read_setup
from kvbench.experiments.fragmentation import checks as fragmentation_checks
from kvbench.experiments.pressure import checks as pressure_checks
from kvbench.experiments.sharing import checks as sharing_checks
from kvbench.experiments.trace import checks as replay
from kvbench.runs.calibration import fit_notes
from kvbench.runs.run_folder import Run
from kvbench.summary import servers

Line = dict[str, Any]


def check(run: Run) -> list[str]:
    """The reasons not to trust a run, one sentence each; empty if there is none."""
    setup = read_setup(run.manifest)
    return [
        *_failures(run),
        *_warm_first_pass(run, setup),
        *_wrong_tokens(run, setup),
        *servers.reasons(run),
        *replay.reasons(run, setup),
        *_tier_never_hit(run, setup),
        *_silent_tier(run, setup),
        *_not_as_predicted(run),
        *pressure_checks.reasons(run, setup),
        *fragmentation_checks.reasons(run, setup),
        *sharing_checks.reasons(run, setup),
    ]


def notes(run: Run) -> list[str]:
    """What a reader must know and what is no fault, one sentence each."""
    setup = read_setup(run.manifest)
    return [
        *_status(run, setup),
        *run.skipped,
        *_simulated(setup),
        *_not_predicted(run, setup),
        *_nothing_to_show(setup),
        *replay.notes(setup),
        *_tier_sizes(run, setup),
        *servers.notes(run),
        *pressure_checks.notes(run, setup),
        *fragmentation_checks.notes(run, setup),
        *sharing_checks.notes(run, setup),
    ]


# Reasons.


def _failures(run: Run) -> Iterator[str]:
    kinds: dict[str, list[Line]] = {}
    for line in run.requests:
        if line["error"] is not None:
            kinds.setdefault(line["error"]["kind"], []).append(line)
    for kind, lines in kinds.items():
        first = " ".join(str(lines[0]["error"]["message"]).split())
        yield f"{len(lines)} of {len(run.requests)} requests failed ({kind}); the first, {lines[0]['request_id']}: {first}"


def _warm_first_pass(run: Run, setup: Setup) -> Iterator[str]:
    """A hit on a document's first reading in pass 0, unless documents may share their heads: the cache was not cold.

    The first reading, so that ``zipf`` as first pass, which reads a document twice, is checked as well. A prompt found whole is no hit, of
    which the last token is always computed: it was shared with another answer to it. A log claims no cold start.
    """
    if setup.of_log or setup.own_documents or setup.config.get("overlap", 0) > 0:
        return
    read: set[tuple[Any, ...]] = set()
    warm: dict[str, list[Line]] = {}
    for line in run.requests:
        if line["pass_index"] != 0 or _cached(line) == line["prompt_tokens"]:
            continue
        document = (line["arm"], line["repeat"], line["doc_id"])
        shares = setup.replay is not None and line["position"] > 0  # prompts of a trace may begin as earlier ones did
        if document not in read and not shares and _cached(line) > 0:
            warm.setdefault(line["arm"], []).append(line)
        read.add(document)
    for arm, lines in warm.items():
        yield (
            f"the first pass of arm {arm} was not cold: {_requests(len(lines))} met cached tokens of a document never read before "
            f"(the first, {lines[0]['request_id']}: {_cached(lines[0]):,})"
        )


def _wrong_tokens(run: Run, setup: Setup) -> Iterator[str]:
    """Counts that contradict each other, request by request."""

    def parts(line: Line) -> list[int | None]:
        return [line["cached_tokens_device"], line["cached_tokens_host"], line["computed_tokens"], line["prompt_tokens"]]

    def unequal_sum(line: Line) -> bool:
        *tiers, prompt = parts(line)
        return None not in (*tiers, prompt) and sum(tiers) != prompt  # type: ignore[arg-type]

    def resized(line: Line) -> bool:
        return line["prompt_tokens"] not in (None, line["prompt_tokens_sent"])

    def wrong_output(line: Line) -> bool:
        return line["error"] is None and setup.output_tokens is not None and line["output_tokens"] != setup.output_tokens

    def sums(line: Line) -> str:
        return "{} + {} + {} of {}".format(*parts(line))

    yield from _lines(run, unequal_sum, "tokens by tier (device + host + computed) do not sum to the prompt", sums)
    yield from _lines(
        run,
        resized,
        "the prompt as counted is not the prompt as sent",
        lambda line: f"{line['prompt_tokens']} of {line['prompt_tokens_sent']}",
    )
    yield from _lines(
        run,
        wrong_output,
        "the output is not --output-tokens long",
        lambda line: f"{line['output_tokens']} of {setup.output_tokens}",
    )


def _lines(run: Run, wrong: Callable[[Line], bool], what: str, how: Callable[[Line], str]) -> Iterator[str]:
    """One sentence for all requests for which ``wrong`` holds."""
    found = [line for line in run.requests if wrong(line)]
    if found:
        yield f"{what}, in {_requests(len(found))} (the first, {found[0]['request_id']}: {how(found[0])})"


def _tier_never_hit(run: Run, setup: Setup) -> Iterator[str]:
    """A host tier that holds everything and gives nothing to a pass that reads again in order what the device pool has lost."""
    if setup.simulated or setup.concurrency != 1 or setup.reuse < 1 or setup.fits or not setup.document_tokens:
        return
    foreseen = {(line["arm"], line["pass_index"]) for line in run.passes if (line.get("prediction") or {}).get("host") == 0}
    chunk, question, output = setup.chunk_tokens, setup.question_tokens, setup.output_tokens
    if chunk is None or question is None or output is None or min(setup.document_tokens) < 2 * chunk:
        return
    needed = chunk * sum(_chunks_written(tokens, setup) for tokens in setup.document_tokens)
    for arm in setup.arms:
        size = setup.host_tokens.get(arm)
        if size is None or size < needed:
            continue
        for label, lines in _in_order_again(run, arm):
            known = [line for line in lines if None not in (line["cached_tokens_host"], line["computed_tokens"])]
            # The device pool may hold all but a little of each document; then no whole chunk is missing.
            missed = any(line["computed_tokens"] >= question + output + 2 * chunk for line in known)
            excused = (arm, lines[0]["pass_index"]) in foreseen  # a tier that evicts from a watermark on holds less than its size
            if missed and not excused and not any(line["cached_tokens_host"] for line in known):
                yield f"the {arm} tier ({size:,}) holds all that is read ({needed:,}) and gave nothing to {label}, although it must"


def _silent_tier(run: Run, setup: Setup) -> Iterator[str]:
    """A tier of unknown size, or requests that overlap: then no single pass must hit, but one that never does says nothing of a tier."""
    if setup.simulated or setup.fits or setup.reuse < 1 or not setup.working_set:
        return
    for arm in setup.arms:
        size = setup.host_tokens.get(arm)
        again = [
            line for line in run.passes if line["arm"] == arm and line["pass_index"] > 0 and line.get("cached_tokens_host") is not None
        ]
        known_and_alone = size is not None and setup.concurrency == 1  # _tier_never_hit knows better
        if not setup.has_tier(arm) or not again or known_and_alone or (size is not None and size < setup.working_set):
            continue
        if not any(line["cached_tokens_host"] for line in again) and any(line["computed_tokens"] for line in again):
            yield f"the {arm} tier gave nothing in the whole run: it does not work, or is far too small; its server's log may tell"


def _not_as_predicted(run: Run) -> Iterator[str]:
    """Hits that an exact prediction did not foresee: the engine, the profile or the counting is at fault, and nobody knows which."""
    agreement = compare(run)
    if agreement is None or not agreement.exact or not agreement.differences:
        return
    first = agreement.differences[0]
    yield (
        f"hits differ from the prediction (profile {agreement.profile}) in {len(agreement.differences)} of {agreement.requests} requests "
        f"(the first, {first.request_id}: device, host, computed {_tokens(first.measured)}, predicted {_tokens(first.predicted)})"
    )


def _tokens(tiers: tuple[int, int, int]) -> str:
    return " + ".join(f"{tokens:,}" for tokens in tiers)


def _chunks_written(document: int, setup: Setup) -> int:
    """The most chunks a tier gets of one document over the run: its own once, those with a question or output in each pass."""
    chunk = setup.chunk_tokens or 1
    own = document // chunk
    whole = (document + (setup.question_tokens or 0) + (setup.output_tokens or 0)) // chunk
    return own + (whole - own) * len(setup.config.get("passes") or ())


def _in_order_again(run: Run, arm: str) -> Iterator[tuple[str, list[Line]]]:
    """The passes of an arm, successful requests only, that read in order and follow a pass in order."""
    passes: dict[int, list[Line]] = {}
    for line in run.requests:
        if line["arm"] == arm and line["error"] is None:
            passes.setdefault(line["pass_index"], []).append(line)
    for index in sorted(passes):
        before = passes.get(index - 1)
        if before and before[0]["pass"] in IN_ORDER and passes[index][0]["pass"] in IN_ORDER:
            yield f"pass {index} ({passes[index][0]['pass']})", passes[index]


# Notes.


def _status(run: Run, setup: Setup) -> Iterator[str]:
    status = run.manifest.get("status")
    of = "" if setup.expected_requests is None else f" of {setup.expected_requests:,}"
    if status == "interrupted":
        why = "; ".join(run.manifest.get("reasons") or [])
        sent = sum(1 for line in run.requests if line["error"] is None or line["error"]["kind"] != "not_sent")
        yield f"interrupted after {sent:,}{of} requests" + (f": {why}" if why else "")
    if status == "running":
        yield f"still marked as running with {len(run.requests):,}{of} requests on disk: it was killed, or it is in progress"


def _simulated(setup: Setup) -> Iterator[str]:
    """What a prediction does not know."""
    if not setup.simulated:
        return
    yield "this is a prediction, nothing was measured: each request alone, and what storing costs a first read left out"
    if setup.concurrency != 1:
        yield "requests overlap in this setup, so their tokens are an estimate, and neither waiting nor shared steps are in their times"
    if setup.rates is None:
        yield "no time is predicted without rates: --prefill-rate and --restore-rate, or --calibrate RUN_DIR"
        return
    fit, model = setup.rates.get("fit") or {}, setup.config.get("model")
    if fit:
        yield from fit_notes(fit["model"], fit["status"], model)


def _not_predicted(run: Run, setup: Setup) -> Iterator[str]:
    if setup.tiered and setup.profile is None and run.passes and not any(line.get("prediction") for line in run.passes):
        yield "hits are not predicted: the cache semantics of this server are not known"


def _nothing_to_show(setup: Setup) -> Iterator[str]:
    """Setups in which no tier can make a difference."""
    if setup.tiered and setup.fits:
        remedy = "lower --kv-tokens" if setup.own_documents or setup.replay else "raise --docs or lower --kv-tokens"
        sizes = f"the working set ({setup.working_set:,}) fits the pool ({setup.device_tokens:,})"
        yield f"fits: {sizes}: no tier can show here; {remedy}"
    passes = setup.config.get("passes") or ()
    if len(passes) == 1:
        yield "there is one pass, so no document is read again; add a pass (--passes sequential,repeat)"
    elif setup.reuse == 0:
        yield "nothing is read again (--reuse 0), so no later pass can hit; raise --reuse"


def _tier_sizes(run: Run, setup: Setup) -> Iterator[str]:
    """What a small host tier cannot do. The smallest size that is a problem is the one said."""
    chunk, documents = setup.chunk_tokens, setup.document_tokens
    for arm in setup.arms:
        size = setup.host_tokens.get(arm)
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
        elif chunk is not None and size < sum(tokens // chunk * chunk for tokens in documents) and _each_its_own(setup, run, arm):
            yield (
                f"the {arm} tier ({size:,}) is smaller than the working set ({setup.working_set:,}): read again in order, "
                f"each document is evicted just before its turn; {remedy}"
            )


def _each_its_own(setup: Setup, run: Run, arm: str) -> bool:
    """Whether the documents need their sizes' sum: they share no head, and no reading in order has shown otherwise by a hit."""
    hit = any(line["cached_tokens_host"] for _, lines in _in_order_again(run, arm) for line in lines)
    return not hit and setup.config.get("overlap", 0) == 0


def _cached(line: Line) -> int:
    """Cached tokens of a request; unknown counts as none here, where only a known hit is a fault."""
    return (line["cached_tokens_device"] or 0) + (line["cached_tokens_host"] or 0)


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"
