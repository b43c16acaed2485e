"""When a prediction is a promise: equal prompts are taken to have equal answers, which 16 bits do not keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from kvbench.experiments.cyclic.options import CyclicOptions
from kvbench.runners.base import ArmSetup, Backend, ClosedLoop, DeviceCapacity, ListSource, Request
from kvbench.runs.records import RequestKey
from kvbench.session.prediction import PassPredictor
from tests.runners.turns import Talks, talks

BLOCK = 16


class Facts:
    """What the predictor asks of a backend."""

    capacity = DeviceCapacity(640, BLOCK)
    chunk_tokens = 256

    def __init__(self, profile: str, dtype: str) -> None:
        self._profile, self._dtype = profile, dtype

    def profile(self, arm: str) -> str:
        return self._profile

    def describe(self) -> dict[str, Any]:
        return {"model": {"dtype": self._dtype}}


def promised(profile: str, dtype: str, *requests: tuple[int, int]) -> list[bool]:
    """Whether each pass of one request, prompt and output tokens, is promised."""
    predictor = PassPredictor(CyclicOptions.model_validate({}), cast(Backend, Facts(profile, dtype)), ArmSetup("none"))
    made = [
        Request(RequestKey("none", 0, "sequential", index, 0, str(index), 0), [1] * prompt, output)
        for index, (prompt, output) in enumerate(requests)
    ]
    found = [predictor.of(ListSource([request]), ClosedLoop(1)) for request in made]
    return [prediction is not None and prediction["exact"] for prediction in found]


@pytest.mark.parametrize(
    ("profile", "dtype", "expected"),
    [
        ("engine", "bfloat16", [True, False, False]),
        ("engine", "float16", [True, False, False]),
        ("engine", "float32", [True, True, True]),
        ("vllm", "bfloat16", [True, True, True]),
    ],
)
def test_an_answer_in_16_bits_that_fills_a_block_makes_what_follows_an_estimate(profile: str, dtype: str, expected: list[bool]) -> None:
    assert promised(profile, dtype, (2 * BLOCK - 4, 4), (2 * BLOCK - 4, 5), (BLOCK, 1)) == expected


@pytest.mark.parametrize(("dtype", "exact"), [("float32", True), ("bfloat16", False)])
def test_prompts_that_hold_answers_in_16_bits_are_an_estimate(dtype: str, exact: bool) -> None:
    """Equal first prompts may then have other answers, and so be followed by other prompts."""
    predictor = PassPredictor(CyclicOptions.model_validate({}), cast(Backend, Facts("vllm", dtype)), ArmSetup("none"))
    source = talks(2)
    found = [predictor.of(one, ClosedLoop(1)) for one in (ListSource(source.first), source, ListSource(source.first))]
    assert [prediction is not None and prediction["exact"] for prediction in found] == [True, exact, exact]


def test_sampled_answers_in_prompts_are_an_estimate() -> None:
    class Sampled(Talks):
        @property
        def first(self) -> list[Request]:
            return [replace(request, temperature=1.0) for request in super().first]

    predictor = PassPredictor(CyclicOptions.model_validate({}), cast(Backend, Facts("vllm", "float32")), ArmSetup("none"))
    prediction = predictor.of(Sampled(talks(1).plan, 1), ClosedLoop(1))
    assert prediction is not None
    assert not prediction["exact"]
