"""How runs whose arms are tiers are read: those of ``cyclic`` and ``trace``, and people's own logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_view import RunView
from kvbench.analysis.speedup import FirstRead
from kvbench.experiments.reading import Reading
from kvbench.experiments.tiers import checks, limits, predicted_sentences, sentences


class TierReading(Reading):
    """What a tier saved, and what it cost.

    Attributes:
        to_overflow: options that make a working set exceed the device pool.
    """

    judges_tiers = True
    to_overflow = "raise --docs or lower --kv-tokens"

    def title(self, view: RunView) -> Iterator[str]:
        """The documents."""
        if lengths := view.info.document_tokens:
            span = f"{lengths[0]:,}" if min(lengths) == max(lengths) else f"{min(lengths):,} to {max(lengths):,}"
            yield f"{len(lengths):,} document{'s' if len(lengths) > 1 else ''} of {span} + {view.info.question_tokens or 0:,}"

    def reasons(self, view: RunView) -> Iterator[str]:
        """A tier that gave nothing although it must."""
        return checks.reasons(view)

    def setup_notes(self, view: RunView) -> Iterator[str]:
        """Setups in which no tier can help, or only in part."""
        yield from checks.not_predicted(view)
        yield from checks.nothing_to_show(view.info, "lower --kv-tokens" if view.info.own_documents else self.to_overflow)
        yield from self.workload_notes(view)
        yield from checks.tier_sizes(view)

    def workload_notes(self, view: RunView) -> Iterable[str]:
        """Of the requests themselves."""
        return ()

    def unsteady(self, view: RunView, first_reads: Sequence[FirstRead]) -> Iterable[str]:
        """Where the same work differed by itself; the arms of a log may be anything."""
        return () if view.info.of_log else sentences.unsteady(first_reads)

    def sentences(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterable[str]:
        """What reading again gained; of a log with one pass nothing, as nothing says what that is."""
        if view.info.of_log and len(view.labels) == 1:
            return ()
        if view.info.simulated:
            return predicted_sentences.read(self, view, passes)
        return sentences.read(self, view, passes, first_reads)

    def limits(self, view: RunView) -> Iterable[str]:
        """What documents that are alike, and passes that read all of them, leave out."""
        return limits.limits(view.info)

    def again(self, pass_name: str) -> str:
        """How a pass reads again, as the beginning of a sentence."""
        if pass_name in sentences.IN_ORDER:
            return "Read again in order"
        how = {"reverse": "in reverse", "shuffle": "in a shuffled order"}
        return f"Read again {how.get(pass_name, 'by ' + pass_name)}"


READING = TierReading()
