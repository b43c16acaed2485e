"""Lengths of prompts and outputs: what is said is what is drawn, the same everywhere."""

from __future__ import annotations

from statistics import NormalDist, median, pstdev
from typing import Any

import numpy as np
import pytest

from kvbench.errors import UsageError
from kvbench.workloads.draws import Draws
from kvbench.workloads.lengths import parse_lengths
from tests.configs import loaded


def drawn(text: str, count: int, seed: int = 0) -> list[int]:
    lengths, draws = parse_lengths(text), Draws(seed, "test")
    return [lengths.draw(draws) for _ in range(count)]


def test_a_number_is_every_length() -> None:
    assert drawn("7", 3) == [7, 7, 7]
    assert (parse_lengths("7").fixed, parse_lengths("uniform:7:7").fixed) == (7, None)


def test_draws_are_pinned() -> None:
    assert drawn("uniform:3:9", 8) == [5, 6, 9, 9, 6, 8, 7, 8]
    assert drawn("lognormal:200:0.8", 6) == [417, 445, 72, 96, 131, 166]


def test_uniform_reaches_both_ends_and_nothing_else() -> None:
    counts = np.bincount(drawn("uniform:3:9", 7000), minlength=10)
    assert counts[:3].sum() == 0
    assert counts[3:].min() > 850
    assert counts[3:].max() < 1150


def test_lognormal_has_its_median_and_spread() -> None:
    values = drawn("lognormal:200:0.8", 4000)
    assert 190 < median(values) < 210
    assert 0.77 < pstdev(np.log(values)) < 0.83
    below = sum(value < 200 * np.exp(0.8 * NormalDist().inv_cdf(0.9)) for value in values) / len(values)
    assert 0.885 < below < 0.915


def test_no_length_is_below_one() -> None:
    assert min(drawn("lognormal:1:3", 500)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("many", "a number, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA is expected, as in lognormal:200:0.8"),
        ("normal:3:4", "a number, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA is expected"),
        ("uniform:3", "a number, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA is expected"),
        ("uniform:9:3", "uniform:LOW:HIGH takes two whole numbers of tokens, the smaller one first"),
        ("uniform:1.5:3", "uniform:LOW:HIGH takes two whole numbers of tokens"),
        ("lognormal:200:0", "lognormal:MEDIAN:SIGMA takes a spread of the logarithm above 0, at most 3"),
        ("lognormal:nan:1", "lengths are from 1 to 1,000,000 tokens"),
        ("lognormal:200:nan", "lognormal:MEDIAN:SIGMA takes a spread of the logarithm above 0"),
        ("0", "lengths are from 1 to 1,000,000 tokens"),
    ],
)
def test_what_is_no_length_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_lengths(text)


def test_the_options_say_lengths() -> None:
    config = loaded(None, {"experiment": "pressure", "prompt_tokens": "uniform:3:9", "output_tokens": "12"})
    assert (config.prompt_lengths.text, config.output_lengths.fixed) == ("uniform:3:9", 12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"output_tokens": "uniform:3:9"}, "--output-tokens uniform:3:9: in cyclic every answer has the same length; give a number"),
        ({"experiment": "pressure", "prompt_tokens": "-3"}, "--prompt-tokens: lengths are from 1 to 1,000,000 tokens (got '-3')"),
        ({"experiment": "sharing", "n": "0"}, "--n: Input should be greater than or equal to 1 (got '0')"),
        ({"experiment": "sharing", "beams": "0"}, "--beams: Input should be greater than or equal to 1 (got '0')"),
        ({"experiment": "pressure", "swap_gib": "0"}, "--swap-gib: Input should be greater than 0, or 'auto' (got '0')"),
        ({"experiment": "pressure", "kv_tokens": "8"}, "--kv-tokens 8 holds no block of --block-size 16"),
        (
            {"experiment": "pressure", "tier": ["cpu"]},
            "--tier does not apply: the experiment is pressure (it applies to `kvbench run cyclic` or `kvbench run trace`)",
        ),
        ({"experiment": "pressure", "arm": ["ample", "ample"]}, "--arm: each arm may be named once (got ['ample', 'ample'])"),
        ({"experiment": "pressure", "arm": ["ample"], "swap_gib": "1"}, "--swap-gib does not apply: no arm swaps (--arm swap)"),
        ({"experiment": "pressure", "runner": "vllm", "arm": ["swap"]}, "--arm swap: vLLM has ample and recompute only"),
        (
            {"experiment": "pressure", "context": "64", "requests": "3"},
            "--requests does not apply: --context says what the two requests are",
        ),
        ({"experiment": "sharing", "runner": "vllm"}, "the experiment sharing needs --runner engine (the runner is vllm)"),
        (
            {"experiment": "pressure", "runner": "simulator"},
            "the experiment pressure needs --runner engine or vllm (the runner is simulator)",
        ),
        ({"n": "3"}, "--n does not apply: the experiment is cyclic (it applies to `kvbench run sharing`)"),
    ],
)
def test_options_that_do_not_go_together_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(None, values)
    assert str(caught.value) == message
