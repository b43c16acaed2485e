"""Experiment ``sharing``: reasons not to believe a run, and notes on how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.analysis.run_view import RunView
from kvbench.experiments.at_once.checks import EXACT, numbered
from kvbench.experiments.sharing.metrics import REFERENCE, different_outputs


def reasons(view: RunView) -> Iterator[str]:
    """Why not to trust the run, one sentence each."""
    workload = view.info.workload
    for line in view.passes:
        asked = workload["answers"][line["pass_index"]]
        if line["requests"] != asked:
            yield f"arm {line['arm']}, {line['pass']}, repeat {line['repeat']}: {line['requests']:,} of {asked:,} answers came to an end"
    wrong = [line for line in view.requests if line["error"] is None and _lengths(line) != _asked(line, workload)]
    if wrong:
        first, lengths = wrong[0], " + ".join(str(tokens) for tokens in _lengths(wrong[0]))
        answers = numbered(len(wrong), "answer")
        yield f"prompt and output are not as long as asked for, in {answers} (the first, {first['request_id']}: {lengths})"
    if view.info.dtype == EXACT:
        yield from _differences(view, f"which {EXACT} does not explain: a token was computed from wrong KV")


def notes(view: RunView) -> Iterator[str]:
    """What a reader must know and what is no fault, one sentence each."""
    for row in view.rows["sharing"]:
        if row.waited_forks:
            yield (
                f"{row.waited_forks:,} forks of {row.arm}, {row.pass_name}, found no room for their copies and were computed again, so "
                "less was held at once than asked for; raise --kv-tokens"
            )
        if row.preemptions:
            yield (
                f"blocks ran out: {row.preemptions:,} preemptions of {row.arm}, {row.pass_name}, so less was held at once than asked for; "
                "raise --kv-tokens"
            )
    for option in ("n", "beams"):
        if view.info.config.get(option) == 1:
            yield f"--{option} 1: one answer to each prompt shares nothing; raise it"
    if view.info.dtype != EXACT:
        near = "the order in which a sum is taken differs in the last bits, and a near tie of two tokens may turn"
        yield from _differences(view, f"{near} (in {view.info.dtype}); --dtype {EXACT} tells that from a fault")


def _differences(view: RunView, why: str) -> Iterator[str]:
    """Where answers differ from the reference arm's, by arm and pass."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in different_outputs(view):
        found.setdefault((line["arm"], line["pass"]), []).append(str(line["request_id"]))
    for (arm, name), answers in found.items():
        yield f"arm {arm}, {name}: other tokens than {REFERENCE} in {numbered(len(answers), 'answer')} (the first, {answers[0]}): {why}"


def _lengths(line: dict[str, Any]) -> tuple[int, int | None]:
    return line["prompt_tokens_sent"], line["output_tokens"]


def _asked(line: dict[str, Any], workload: Mapping[str, Any]) -> tuple[int, int]:
    index, position = line["pass_index"], line["position"]
    return workload["prompt_tokens"][index][position], workload["output_tokens"][index][position]
