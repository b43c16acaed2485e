"""How a run of ``trace`` is read."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import RunView
from kvbench.experiments.tiers.reading import TierReading


class TraceReading(TierReading):
    """One pass, in which prompts may begin as earlier ones did."""

    first_judged = 0
    prompts_share = True
    to_overflow = "lower --kv-tokens"

    def title(self, view: RunView) -> Iterator[str]:
        """The trace, its requests, and their mean lengths."""
        if "trace" in (trace := view.info.workload):
            requests = trace["requests_per_pass"]
            prompt, output = trace["prompt_tokens"] / requests, trace["output_tokens"] / requests
            yield f"{trace['trace']}: {requests:,} of {prompt:,.0f} + {output:,.0f}"

    def requests_of_repeat(self, info: RunInfo) -> int | None:
        """One pass."""
        return info.requests_per_pass

    def reasons(self, view: RunView) -> Iterator[str]:
        """The answers of a whole pass are not as long as asked for; and what speaks against a tier."""
        asked = view.info.workload.get("output_tokens")
        for line in view.passes:
            own = [item for item in view.requests if (item["arm"], item["repeat"]) == (line["arm"], line["repeat"])]
            outputs = [item["output_tokens"] for item in own if item["error"] is None]
            if asked is not None and line["failed"] == 0 and None not in outputs and sum(outputs) != asked:
                yield (
                    f"the answers of arm {line['arm']}, repeat {line['repeat']}, hold {sum(outputs):,} tokens, and the trace asks for "
                    f"{asked:,}"
                )
        yield from super().reasons(view)

    def workload_notes(self, view: RunView) -> Iterator[str]:
        """What was left out, and a trace in which nothing comes again."""
        trace = view.info.workload
        if left_out := trace.get("left_out"):
            yield f"{left_out:,} of the trace's requests were left out: their prompts are above --max-prompt-tokens"
        if "trace" in trace and view.info.working_set == trace["prompt_tokens"]:
            yield "no prompt of the trace begins as an earlier one did, so nothing can hit"

    def limits(self, view: RunView) -> Iterator[str]:
        """The trace's own pace, where it was sent at another."""
        trace, config = view.info.workload, view.info.config
        if "trace" not in trace:
            return
        if trace["span_s"] is None or config.get("rate") is not None:
            yield "the trace at its own times: its requests were sent as --concurrency or --rate asked"
        elif (speedup := float(config.get("speedup", 1))) != 1:
            yield f"the trace at its own pace: it was replayed {speedup:g} times as fast (--speedup)"

    def again(self, pass_name: str) -> str:
        """Its one pass."""
        return "Over the trace"


READING = TraceReading()
