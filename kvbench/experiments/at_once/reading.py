"""What the readings of experiments have in common in which requests are there at once: every request ended, as long as asked for, with
the tokens that it has in the first arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from kvbench.analysis.known_noise import KnownNoise
from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_noise import of_repeats
from kvbench.analysis.run_view import Line, RunView
from kvbench.analysis.speedup import FirstRead
from kvbench.drawing.numbers import factor, numbered, within
from kvbench.experiments.at_once.metrics import compared, measured
from kvbench.experiments.reading import Reading
from kvbench.experiments.verdict import ArmVerdict, claim, remark

EXACT = "float64"
"""A batch of other sequences changes the last bits of a logit. In float64 two tokens would have to be within some 1e-13 of each other for
that to turn one into the other, which in a run's thousands of tokens does not happen; in float32 (1e-5) now and then it does."""


class AtOnceReading(Reading):
    """Arms are ways to use the memory, and no tiers.

    Attributes:
        reference: the arm that speeds are over; ``None``: the first one.
        last_bits: why the same request may give other tokens in another arm.
    """

    reference: ClassVar[str | None] = None
    last_bits: ClassVar[str] = "with other requests in a batch the last bits of a logit differ"

    def title(self, view: RunView) -> Iterator[str]:
        """The requests and their lengths."""
        config = view.info.config
        if "requests" in config:
            yield f"{config['requests']:,} requests of {config['prompt_tokens']} + {config['output_tokens']}"

    def noises(self, view: RunView) -> Iterator[KnownNoise]:
        """Of output tokens/s."""
        several = len(view.labels) > 1
        for index, label in view.labels.items():
            arms = measured(view, None, index).items()
            yield from of_repeats((f"arm {arm}, pass {label}" if several else f"arm {arm}", list(own.rates.values())) for arm, own in arms)

    def verdicts(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterator[ArmVerdict]:
        """Of output tokens/s, over the reference arm's."""
        reference = self.reference or view.info.baseline
        for row in view.rows[self.keys[0]]:
            if row.arm != reference and row.speed is not None:
                ratio = row.speed, row.speed_interval
                said = f"{row.arm}: {row.tokens_per_s:,.0f} output tokens/s, {factor(row.speed)}{within(ratio[1])} of {reference}'s"
                words = f"{said}{remark(*ratio, view.noise)}."
                yield ArmVerdict(row.arm, getattr(row, "pass_name", None), claim(*ratio, view.noise), words, f"{said}.")

    def wrong_tokens(self, view: RunView) -> Iterator[str]:
        """Reasons: other tokens than the reference's, where no rounding explains them."""
        if view.info.dtype == EXACT:
            yield from self.differences(view, f"which {EXACT} does not explain: a token was computed from wrong KV")

    def other_tokens(self, view: RunView) -> Iterator[str]:
        """Notes: equal tokens that prove nothing; other tokens than the reference's, where rounding may explain them."""
        outputs = {(line["doc_id"], line["output_digest"]) for line in view.requests if line.get("output_digest") is not None}
        documents, answers = (set(found) for found in zip(*outputs, strict=True)) if outputs else (set(), set())
        if len(documents) > 1 and len(answers) == 1:
            yield f"all {len(documents):,} prompts, which differ, gave one output, so equal outputs prove nothing; try other weights"
        if view.info.dtype != EXACT:
            remedy = f"--dtype {EXACT} tells that from a fault" if view.info.runner == "engine" else "it is rare with --dtype float32"
            yield from self.differences(view, f"{self.last_bits}, and a near tie of two tokens may turn (in {view.info.dtype}); {remedy}")

    def differences(self, view: RunView, why: str) -> Iterator[str]:
        """Where an arm gave other tokens than the baseline, by arm and repeat."""
        for (arm, repeat), names in different(view, view.info.baseline, "repeat").items():
            requests = numbered(len(names), "request")
            yield f"arm {arm} gave other tokens than {view.info.baseline} in {requests} of repeat {repeat} (the first, {names[0]}): {why}"


def different(view: RunView, reference: str | None, by: str) -> dict[tuple[str, Any], list[str]]:
    """The requests whose tokens are not those that the reference arm gave, by arm and a field of a request line."""
    found: dict[tuple[str, Any], list[str]] = {}
    for line, other in compared(view.requests, view.by_arm.get(reference or "", ())):
        if line["output_digest"] != other["output_digest"]:
            found.setdefault((line["arm"], line[by]), []).append(str(line["request_id"]))
    return found


def unfinished(view: RunView) -> Iterator[str]:
    """Passes that ended without every request's record."""
    asked = view.info.requests_per_pass
    for line in view.passes:
        if asked is not None and line["requests"] != asked:
            yield f"arm {line['arm']}, repeat {line['repeat']}: {line['requests']:,} of {asked:,} requests came to an end"


def wrong_lengths(view: RunView) -> Iterator[str]:
    """Requests that were not sent, or not answered, as long as the workload says."""
    workload = view.info.workload
    asked = list(zip(workload.get("prompt_tokens") or (), workload.get("output_tokens") or (), strict=True))
    wrong = [line for line in view.requests if asked and line["error"] is None and lengths(line) != asked[line["position"]]]
    if wrong:
        found, (prompt, output) = lengths(wrong[0]), asked[wrong[0]["position"]]
        yield (
            f"prompt and output are not as long as asked for, in {numbered(len(wrong), 'request')} "
            f"(the first, {wrong[0]['request_id']}: {found[0]} + {found[1]}, not {prompt} + {output})"
        )


def lengths(line: Line) -> tuple[int, int | None]:
    """Tokens of the prompt that was sent, and of the answer."""
    return line["prompt_tokens_sent"], line["output_tokens"]
