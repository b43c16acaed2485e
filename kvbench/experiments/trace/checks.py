"""Whether to believe the replay of a trace, and what its reader must know."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_info import Setup
from kvbench.runs.run_folder import Run


def reasons(run: Run, setup: Setup) -> Iterator[str]:
    """The answers of a whole pass are not as long as asked for."""
    if setup.replay is None:
        return
    for line in run.passes:
        own = [item for item in run.requests if (item["arm"], item["repeat"]) == (line["arm"], line["repeat"])]
        outputs = [item["output_tokens"] for item in own if item["error"] is None]
        if line["failed"] == 0 and None not in outputs and sum(outputs) != setup.replay.output_tokens:
            yield (
                f"the answers of arm {line['arm']}, repeat {line['repeat']}, hold {sum(outputs):,} tokens, and the trace asks for "
                f"{setup.replay.output_tokens:,}"
            )


def notes(setup: Setup) -> Iterator[str]:
    """What was not replayed, and a trace that no tier can help."""
    if setup.replay is None:
        return
    if left_out := setup.replay.left_out:
        yield f"{left_out:,} of the trace's requests were left out: their prompts are above --max-prompt-tokens"
    if setup.working_set == setup.replay.prompt_tokens:
        yield "no prompt of the trace begins as an earlier one did, so nothing can hit"
