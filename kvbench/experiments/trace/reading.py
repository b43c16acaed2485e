"""How a run of ``trace`` is read."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import RunView
from kvbench.experiments.tiers.reading import TierReading
from kvbench.experiments.trace import checks
from kvbench.experiments.trace.replay import replay_of


class TraceReading(TierReading):
    """One pass, in which prompts may begin as earlier ones did."""

    first_judged = 0
    prompts_share = True
    to_overflow = "lower --kv-tokens"

    def title(self, view: RunView) -> Iterator[str]:
        """The trace, its requests, and their mean lengths."""
        if trace := replay_of(view.info):
            prompt, output = trace.prompt_tokens / trace.requests, trace.output_tokens / trace.requests
            yield f"{trace.trace}: {trace.requests:,} of {prompt:,.0f} + {output:,.0f}"

    def requests_of_repeat(self, info: RunInfo) -> int | None:
        """One pass."""
        return info.requests_per_pass

    def reasons(self, view: RunView) -> Iterator[str]:
        """Answers of another length than the trace's; and what speaks against a tier."""
        if replay := replay_of(view.info):
            yield from checks.reasons(view, replay)
        yield from super().reasons(view)

    def workload_notes(self, view: RunView) -> Iterator[str]:
        """What was left out, and a trace in which nothing comes again."""
        if replay := replay_of(view.info):
            yield from checks.notes(view, replay)

    def limits(self, view: RunView) -> Iterator[str]:
        """The trace's own pace, where it was sent at another."""
        replay, config = replay_of(view.info), view.info.config
        if replay is None:
            return
        if replay.span_s is None or config.get("rate") is not None:
            yield "the trace at its own times: its requests were sent as --concurrency or --rate asked"
        elif (speedup := float(config.get("speedup", 1))) != 1:
            yield f"the trace at its own pace: it was replayed {speedup:g} times as fast (--speedup)"

    def again(self, pass_name: str) -> str:
        """Its one pass."""
        return "Over the trace"


READING = TraceReading()
