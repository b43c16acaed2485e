"""An experiment in one file, which no product code knows: conversations of two turns, held twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from kvbench.analysis.run_view import Rows, RunView
from kvbench.config.run import RunConfig
from kvbench.config.settings import Setting
from kvbench.drawing.layout import Style, fitting
from kvbench.experiments.experiment import Experiment, RunnerFacts
from kvbench.experiments.reading import Reading
from kvbench.experiments.workload import Size, request_key
from kvbench.metrics.metric import SHARE, ComparedBy, Metric, per_cent
from kvbench.runners.base import ArmSetup, FollowUp, Request
from kvbench.workloads.draws import Draws
from kvbench.workloads.passes import Pass

TOKENS, POLICY = Setting("Workload", "tokens", basic=True), Setting("Engine", "", "NAME", frozenset({"engine", "simulator"}), True)


class DialogueOptions(RunConfig):
    talks: Annotated[int, replace(TOKENS, unit="")] = Field(3, ge=1, description="Conversations, one after the other.")
    opening: Annotated[int, TOKENS] = Field(41, ge=1, description="Prompt of the first turn.")
    answer: Annotated[int, TOKENS] = Field(8, ge=1, description="Answer of each turn.")
    follow_up: Annotated[int, TOKENS] = Field(10, ge=1, description="Question of the second turn, behind prompt and answer of the first.")
    policy: Annotated[str | None, POLICY] = Field(None, description="Which free block goes first, by the name of an eviction policy.")
    arms: ClassVar[tuple[str, ...]] = ("none",)
    shorter: ClassVar[str] = "lower --opening, --answer or --follow-up"
    smaller: ClassVar[str] = "--kv-tokens or --talks"


@dataclass(frozen=True)
class Dialogue:
    config: DialogueOptions
    vocab: int
    arms: Sequence[ArmSetup]
    passes: Sequence[Pass]
    count: int
    part: tuple[Pass, str, int] = (Pass("", 0, []), "", 0)
    needs_answers = True

    def requests(self, arm: str, repeat: int, pass_: Pass) -> Dialogue:
        return replace(self, part=(pass_, arm, repeat))

    @property
    def first(self) -> list[Request]:
        return [self._turn(0, talk, [], self.config.opening) for talk in range(self.config.talks)]

    def after(self, request: Request, answer: Sequence[int] | None) -> list[FollowUp]:
        if request.key.turn == 1 or answer is None:
            return []
        return [FollowUp(self._turn(1, request.key.doc_id, [*request.prompt, *answer], self.config.follow_up), 0.0)]

    def _turn(self, turn: int, talk: int, said: list[int], new: int) -> Request:
        key = request_key(*self.part, turn * self.config.talks + talk, talk, turn)
        return Request(key, said + Draws(self.config.seed, "dialogue", talk, turn).integers(new, 0, self.vocab), self.config.answer)

    def pace(self, pass_: Pass) -> None:
        return None

    def sizes(self) -> list[Size]:
        return [Size("the second turn", self.config.opening + self.config.answer + self.config.follow_up, self.config.answer)]

    def working_set_tokens(self) -> int:
        return self.config.talks * sum(self.sizes()[0][1:])

    def working_set_chunks(self, chunk: int) -> int:
        return -(-self.working_set_tokens() // chunk)

    def describe(self) -> dict[str, Any]:
        return {"requests_per_pass": self.count}


@dataclass(frozen=True)
class TurnRow:
    arm: str
    pass_index: int
    turn: int
    prompt: int
    found: int


class DialogueReading(Reading):
    keys, judges_tiers = ("dialogue",), True

    def rows(self, view: RunView) -> Rows:
        turns = view.table.groupby(["arm", "pass_index", "turn"])[["prompt", "device"]].sum().astype(int)
        return {"dialogue": tuple(TurnRow(*place, *tokens) for place, tokens in zip(turns.index, turns.to_numpy().tolist(), strict=True))}

    def tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        cells = [(str(row.pass_index + 1), str(row.turn + 1), row.prompt, row.found) for row in rows["dialogue"]]
        yield "Turn by turn", fitting(["time", "turn", "said", "found"], 2, lambda n: [[a, b, n(c), n(d)] for a, b, c, d in cells], style)

    def sentences(self, view: RunView, passes: Any, first_reads: Any) -> Iterator[str]:
        row = next(row for row in view.rows["dialogue"] if row.turn == 1)
        yield f"Second turns found {row.found:,} of their {row.prompt:,} tokens."


SECOND_HITS = Metric(
    name="second_hits", unit=SHARE, formula="tokens of a second turn's prompt from the device pool ÷ the prompt, mean of the requests",
    measure=lambda one: (one.rows["device"] / one.rows["prompt"])[one.rows.get("turn", 0 * one.rows["position"]) == 1].mean(skipna=False),
    header="2nd turn", worse="lower", compared=ComparedBy.EXACT, words=("forgets", "remembers"), show=per_cent,
)  # fmt: skip


class DialogueExperiment(Experiment[DialogueOptions]):
    name, order, predicted, runners = "dialogue", 99, True, ("engine", "vllm", "simulator")
    sentence = "Conversations of two turns, held twice: what the second turn finds of the first."
    example = "kvbench run dialogue --talks 3 --opening 100"
    reading, options = DialogueReading(), DialogueOptions

    def make_workload(self, config: DialogueOptions, facts: RunnerFacts) -> Dialogue:
        passes = [Pass(name, index, [*range(config.talks)] * 2) for index, name in enumerate(("new", "again"))]
        return Dialogue(config, facts.vocab, [ArmSetup("none", device_policy=config.policy)], passes, 2 * config.talks)
