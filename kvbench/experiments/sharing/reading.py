"""How a run of ``sharing`` is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from kvbench.analysis.known_noise import KnownNoise
from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import Line, Rows, RunView
from kvbench.analysis.speedup import FirstRead
from kvbench.drawing.layout import Style
from kvbench.drawing.numbers import numbered, within
from kvbench.drawing.plots import Plot
from kvbench.experiments.at_once.reading import AtOnceReading, different, lengths
from kvbench.experiments.sharing import metrics, tables
from kvbench.experiments.sharing.metrics import REFERENCE, SharingRow
from kvbench.experiments.verdict import remark

MIB = 2**20
ANSWERS = {"sampling": "sample", "beam": "beam"}
"""What an answer is called, by pass."""


class SharingReading(AtOnceReading):
    """What the answers to one prompt held together."""

    keys = ("sharing",)
    reference = REFERENCE
    last_bits = "the order in which a sum is taken differs in the last bits"
    row_types: ClassVar[Mapping[str, type]] = {"sharing": metrics.SharingRow}

    def rows(self, view: RunView) -> Rows:
        """A row for each pass and arm."""
        return {"sharing": tuple(metrics.rows(view))}

    def title(self, view: RunView) -> Iterator[str]:
        """The requests, and how many answers each has."""
        yield from super().title(view)
        config = view.info.config
        if "beams" in config:
            yield f"{numbered(config['n'], 'sample')}, {numbered(config['beams'], 'beam')}"

    def requests_of_repeat(self, info: RunInfo) -> int | None:
        """Its answers, pass by pass."""
        answers = info.workload.get("answers")
        return None if answers is None else sum(map(int, answers))

    def reasons(self, view: RunView) -> Iterator[str]:
        """Answers that are not whole, or hold other tokens."""
        workload = view.info.workload

        def asked(line: Line) -> tuple[int, int]:
            index, position = line["pass_index"], line["position"]
            return workload["prompt_tokens"][index][position], workload["output_tokens"][index][position]

        for line in view.passes:
            answers = workload["answers"][line["pass_index"]]
            if line["requests"] != answers:
                ended = f"{line['requests']:,} of {answers:,} answers came to an end"
                yield f"arm {line['arm']}, {line['pass']}, repeat {line['repeat']}: {ended}"
        wrong = [line for line in view.requests if line["error"] is None and lengths(line) != asked(line)]
        if wrong:
            (prompt, output), found = lengths(wrong[0]), f"{numbered(len(wrong), 'answer')} (the first, {wrong[0]['request_id']}"
            yield f"prompt and output are not as long as asked for, in {found}: {prompt} + {output})"
        yield from self.wrong_tokens(view)

    def notes(self, view: RunView) -> Iterator[str]:
        """Blocks that ran out, a single answer to each prompt, other tokens."""
        less = " so less was held at once than asked for; raise --kv-tokens"
        for row in view.rows["sharing"]:
            of = f"{row.arm}, {row.pass_name},"
            if row.waited_forks:
                yield f"{row.waited_forks:,} forks of {of} found no room for their copies and were computed again,{less}"
            if row.preemptions:
                yield f"blocks ran out: {row.preemptions:,} preemptions of {of}{less}"
        for option in ("n", "beams"):
            if view.info.config.get(option) == 1:
                yield f"--{option} 1: one answer to each prompt shares nothing; raise it"
        yield from self.other_tokens(view)

    def differences(self, view: RunView, why: str) -> Iterator[str]:
        """Where answers differ from the reference arm's, by arm and pass."""
        for (arm, name), answers in different(view, REFERENCE, "pass").items():
            yield f"arm {arm}, {name}: other tokens than {REFERENCE} in {numbered(len(answers), 'answer')} (the first, {answers[0]}): {why}"

    def sentences(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterator[str]:
        """What copy-on-write saved in each pass, and what it did to the speed."""
        rows = view.rows["sharing"]
        base = {row.pass_name: row for row in rows if row.arm == REFERENCE}
        for row in rows:
            other = base.get(row.pass_name)
            if row.arm != REFERENCE and other is not None and row.blocks is not None and other.blocks is not None:
                answers = numbered(row.answers // max(row.requests, 1), ANSWERS.get(row.pass_name, "answer"))
                yield f"{answers} of each prompt: {_memory(row, row.blocks, other.blocks)}{_copies(row, other)}{_speed(row, view.noise)}."
        if rows and not any(row.saved is not None for row in rows):
            yield f"One of the arms did not end, so there is nothing to compare: what is saved stands beside {REFERENCE}."

    def limits(self, view: RunView) -> Iterator[str]:
        """How answers share a prompt elsewhere."""
        yield (
            "a server's way of sharing: vLLM 0.32 makes a request of each sample, which share what its prefix cache finds "
            "(vllm/v1/engine/parallel_sampling.py), and searches beams outside its engine, a request of one token for each beam and step "
            "(vllm/entrypoints/generate/beam_search)"
        )

    def tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        """The blocks, and the work."""
        if found := rows["sharing"]:
            yield "Blocks held in the fullest step; mean: of all steps; shared: entries ÷ blocks", tables.memory(found, style)
            yield f"Work; same: answers with {REFERENCE}'s tokens; vs: tokens/s ÷ {REFERENCE}'s", tables.work(found, style)

    def plots(self, view: RunView) -> Iterator[Plot]:
        """The blocks held, step by step."""
        from kvbench.experiments.sharing.plots import held_plots  # late: matplotlib

        return held_plots(view)


def _memory(row: SharingRow, own: int, copies: int) -> str:
    tables = f"each in {row.shared:.1f} block tables"
    if own == copies:
        return f"{row.arm} held {own:,} blocks at most, as many as {REFERENCE} ({tables})"
    mib = None if row.block_bytes is None else abs(copies - own) * row.block_bytes / MIB
    size = "" if mib is None else f"{mib:,.1f} MiB, " if mib >= 1 else f"{mib:.2g} MiB, "
    share, less = abs(1 - own / copies) * 100, "less" if own < copies else "more"
    return f"{row.arm} held {own:,} blocks at most where {REFERENCE} held {copies:,} ({size}{share:.0f} % {less}; {tables})"


def _copies(row: SharingRow, other: SharingRow) -> str:
    if row.copied_blocks is None or other.copied_blocks is None or not other.copied_blocks:
        return ""
    return f", and copied {row.copied_blocks:,} instead of {other.copied_blocks:,}"


def _speed(row: SharingRow, noise: KnownNoise | None) -> str:
    if row.speed is None or row.tokens_per_s is None:
        return ""
    difference = f"{within(row.speed_interval)}{remark(row.speed, row.speed_interval, noise)}"
    return f"; {row.tokens_per_s:,.0f} output tokens/s, {row.speed:.2f}x{difference}"


READING = SharingReading()
