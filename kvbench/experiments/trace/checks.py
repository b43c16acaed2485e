"""Whether to believe the replay of a trace, and what its reader must know."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_view import RunView
from kvbench.experiments.trace.replay import Replay


def reasons(view: RunView, replay: Replay) -> Iterator[str]:
    """The answers of a whole pass are not as long as asked for."""
    for line in view.passes:
        own = [item for item in view.requests if (item["arm"], item["repeat"]) == (line["arm"], line["repeat"])]
        outputs = [item["output_tokens"] for item in own if item["error"] is None]
        if line["failed"] == 0 and None not in outputs and sum(outputs) != replay.output_tokens:
            yield (
                f"the answers of arm {line['arm']}, repeat {line['repeat']}, hold {sum(outputs):,} tokens, and the trace asks for "
                f"{replay.output_tokens:,}"
            )


def notes(view: RunView, replay: Replay) -> Iterator[str]:
    """What was not replayed, and a trace that no tier can help."""
    if replay.left_out:
        yield f"{replay.left_out:,} of the trace's requests were left out: their prompts are above --max-prompt-tokens"
    if view.info.working_set == replay.prompt_tokens:
        yield "no prompt of the trace begins as an earlier one did, so nothing can hit"
