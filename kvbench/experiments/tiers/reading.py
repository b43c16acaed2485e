"""How runs whose arms are tiers are read: those of ``cyclic`` and ``trace``, and people's own logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvbench.analysis.known_noise import KnownNoise
from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_noise import of_tiers
from kvbench.analysis.run_view import RunView
from kvbench.analysis.speedup import FirstRead
from kvbench.experiments.reading import Reading
from kvbench.experiments.tiers import checks, sentences
from kvbench.experiments.verdict import ArmVerdict
from kvbench.workloads.passes import IN_ORDER, NAMES


class TierReading(Reading):
    """What a tier saved, and what it cost.

    Attributes:
        to_overflow: options that make a working set exceed the device pool.
    """

    judges_tiers = True
    checked = ()
    to_overflow = "raise --docs or lower --kv-tokens"

    def title(self, view: RunView) -> Iterator[str]:
        """The documents."""
        if lengths := view.info.document_tokens:
            span = f"{lengths[0]:,}" if min(lengths) == max(lengths) else f"{min(lengths):,} to {max(lengths):,}"
            yield f"{len(lengths):,} document{'s' if len(lengths) > 1 else ''} of {span} + {view.info.question_tokens or 0:,}"

    def reasons(self, view: RunView) -> Iterator[str]:
        """A tier that gave nothing although it must."""
        yield from checks.tier_never_hit(view)
        yield from checks.silent_tier(view)

    def setup_notes(self, view: RunView) -> Iterator[str]:
        """Setups in which no tier can help, or only in part."""
        yield from checks.not_predicted(view)
        yield from checks.nothing_to_show(view.info, "lower --kv-tokens" if view.info.own_documents else self.to_overflow)
        yield from self.workload_notes(view)
        yield from checks.tier_sizes(view)

    def workload_notes(self, view: RunView) -> Iterable[str]:
        """Of the requests themselves."""
        return ()

    def noises(self, view: RunView) -> Iterator[KnownNoise]:
        """Of TTFT p50."""
        return of_tiers(view, self.first_judged)

    def verdicts(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterable[ArmVerdict]:
        """What reading again gained; of a log with one pass nothing, as nothing says what that is."""
        if view.info.simulated or (view.info.of_log and len(view.labels) == 1):
            return ()
        return sentences.verdicts(self, view, passes, first_reads)

    def sentences(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterable[str]:
        """The verdicts; why there is none; of a simulated run what it predicts."""
        if view.info.simulated:
            return sentences.predicted(self, view, passes)
        if view.info.of_log and len(view.labels) == 1:
            return ()
        return [verdict.words for verdict in self.verdicts(view, passes, first_reads)] or sentences.no_verdict(view, passes)

    def limits(self, view: RunView) -> Iterator[str]:
        """What documents that are alike, and passes that read all of them, leave out."""
        yield from _alike(view.info)
        yield from _all_again(view.info)

    def again(self, pass_name: str) -> str:
        """How a pass reads again, as the beginning of a sentence."""
        if pass_name in IN_ORDER:
            return "Read again in order"
        how = {"reverse": "in reverse", "shuffle": "in a shuffled order"}
        return f"Read again {how.get(pass_name, 'by ' + pass_name)}"


def _alike(info: RunInfo) -> Iterator[str]:
    """Synthetic documents are alike, and share what was asked for."""
    if info.own_documents or not info.document_tokens or len(info.document_tokens) < 2 or "overlap" not in info.config:
        return
    overlap = float(info.config["overlap"])
    shared = "share nothing" if overlap == 0 else f"share the same first {overlap * 100:g} %"
    options = "--overlap, --documents" if overlap == 0 else "--documents"
    yield f"documents that differ in length or overlap in part: all have {info.document_tokens[0]:,} tokens and {shared} ({options})"


def _all_again(info: RunInfo) -> Iterator[str]:
    """Later passes that read everything again; with the same question, if they do."""
    later = tuple(info.config.get("passes") or ())[1:]
    if not later or not set(later) <= set(NAMES) or info.reuse < 1:
        return
    same = info.config.get("question") == "same"
    rare, options = "documents that are seldom read again", "--passes" if info.own_documents else "--reuse"
    if same:
        yield f"{rare}, or asked something else: every later pass reads all, with the same question ({options}, --question vary)"
    else:
        yield f"{rare}: every later pass reads all ({options})"


READING = TierReading()
