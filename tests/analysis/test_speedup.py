"""Speedups, their intervals, the first-read cost and the noise, and the sentences that say them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kvbench.analysis.pass_rows import PassRow
from kvbench.summary.summary import Summary, summarise
from tests.made import Answer, Made, Script, cyclic

# The published measurement's table: p50 and mean of ten requests, by arm and pass.
PUBLISHED = {
    ("none", 0): (575.5, 581.2), ("none", 1): (576.2, 575.9), ("none", 2): (505.4, 343.6),
    ("cpu", 0): (597.8, 605.4), ("cpu", 1): (48.6, 49.6), ("cpu", 2): (47.2, 40.9),
}  # fmt: skip


def as_published(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
    """Ten values with the median and the mean as published: eight at the median, the first and last share the rest."""
    p50, mean = PUBLISHED[arm, index]
    rest = 10 * (mean - p50)
    value = p50 + (rest if (rest > 0 and doc == 9) or (rest < 0 and doc == 0 and p50 + rest > 0) else 0)
    if rest < 0 and p50 + rest <= 0:  # one request cannot take it all
        value = p50 + (rest / 4 if doc < 4 else 0)
    host = 4864 if arm == "cpu" and index else 0
    return Answer(value, device=16 if index == 2 else 0, host=host)


def summary_of(path: Path, script: Script, made: Made | None = None) -> Summary:
    return summarise((made or Made()).write(path / "run", script))


def row(summary: Summary, arm: str, index: int) -> PassRow:
    return next(item for item in summary.passes if (item.arm, item.pass_index) == (arm, index))


def test_the_published_table(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, as_published)
    for (arm, index), (p50, mean) in PUBLISHED.items():
        ttft = row(summary, arm, index).ttft_ms
        assert (ttft.p50, ttft.mean) == pytest.approx((p50, mean))
    repeat = row(summary, "cpu", 1).speedup
    assert repeat.p50 == pytest.approx(11.9, abs=0.05)
    assert repeat.mean == pytest.approx(11.6, abs=0.05)
    cost = summary.first_reads[0]
    assert cost.cost == pytest.approx(0.04, abs=0.005)
    assert cost.noise == pytest.approx(576.2 / 575.5 - 1)
    assert summary.verdict.standing == "steady"
    assert cost.noise_of == "passes"
    assert summary.sentences == (
        "Read again in order, the cpu tier cut TTFT p50 from 576 ms to 48.6 ms, 11.9x; cold-pass overhead: +3.9 %, run-to-run noise 0.1 %.",
    )


def test_the_baseline_is_one_exactly(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, cyclic, Made(repeats=2))
    assert [(item.speedup.p50, item.speedup.mean) for item in summary.passes if item.arm == "none"] == [(1.0, 1.0)] * 3


def noisy(seed: int, factor: float, spread: float = 0.05) -> Script:
    """``cpu`` is ``factor`` times faster in later passes; every time varies by ``spread``."""
    rng = np.random.default_rng(seed)

    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        slow = 400.0 + 10 * doc
        value = slow / factor if arm == "cpu" and index else slow
        return Answer(value * (1 + spread * rng.standard_normal()), host=4864 if arm == "cpu" and index else 0)

    return script


def test_the_interval_holds_the_speedup_and_is_the_same_every_time(tmp_path: Path) -> None:
    run = Made(repeats=3).write(tmp_path / "run", noisy(1, 8))
    first, second = row(summarise(run), "cpu", 1).speedup, row(summarise(run), "cpu", 1).speedup
    assert first == second
    assert first.p50_interval is not None
    assert first.p50 is not None
    low, high = first.p50_interval
    assert 7 < low < first.p50 < high < 9
    assert first.mean_interval is not None
    assert first.mean is not None
    assert first.mean_interval[0] < first.mean < first.mean_interval[1]


def test_the_interval_is_paired_by_document_and_repeat(tmp_path: Path) -> None:
    """Documents differ a hundredfold, the ratio is 2 for each: pairs show no spread, unpaired resampling would."""

    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(10.0 * 2**doc / (2 if arm == "cpu" else 1))

    interval = row(summary_of(tmp_path, script, Made(repeats=2)), "cpu", 2).speedup.mean_interval
    assert interval == pytest.approx((2.0, 2.0))


def test_one_repeat_has_no_interval(tmp_path: Path) -> None:
    assert row(summary_of(tmp_path, noisy(1, 8)), "cpu", 1).speedup.p50_interval is None


def test_equal_values_have_an_interval_without_warnings(tmp_path: Path) -> None:
    speedup = row(summary_of(tmp_path, lambda arm, *_: Answer(100.0 if arm == "none" else 50.0), Made(repeats=2)), "cpu", 1).speedup
    assert speedup.p50_interval == pytest.approx((2.0, 2.0))


def test_noise_with_repeats_is_the_spread_of_the_baseline(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, *_: int) -> Answer:
        return Answer([100.0, 104.0, 102.0][repeat] * (1.1 if arm == "cpu" else 1.0))

    cost = summary_of(tmp_path, script, Made(repeats=3)).first_reads[0]
    assert cost.noise == pytest.approx(4 / 102)
    assert cost.noise_of == "repeats"
    assert cost.cost == pytest.approx(0.1)


def test_no_two_passes_of_the_same_work_leave_the_noise_unknown(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(9.0, device=5024 if index else 0)

    summary = summary_of(tmp_path, script, Made(passes=("sequential", "repeat")))
    assert (summary.first_reads[0].noise, summary.first_reads[0].noise_of) == (None, None)
    assert summary.sentences[0].endswith("with nothing to tell how much of it is noise (--repeats 3).")
    assert (summary.verdict.standing, summary.verdict.arms[0].kind) == ("unknown", "no token from the tier")


# Sentences.

SMALL = {"none": None, "cpu": 1024}
"""A tier so small that it need not give anything."""


def later(factor: float, host: int = 4864) -> Script:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(400.0 / factor, host=host) if arm == "cpu" and index else Answer(400.0)

    return script


@pytest.mark.parametrize(
    ("made", "script", "words"),
    [
        (
            Made(),
            later(10),
            "the cpu tier cut TTFT p50 from 400 ms to 40.0 ms, 10.0x; cold-pass overhead: none measurable (+0.0 %, run-to-run noise 0.0 %)",
        ),
        (
            Made(repeats=2),
            later(10),
            "10.0x [95 % 10.0 to 10.0]; cold-pass overhead: none measurable (+0.0 %, run-to-run noise 0.0 %)",
        ),
        (Made(), later(0.8), "raised TTFT p50 from 400 ms to 500 ms, 0.80x (slower);"),
        (Made(), later(1.02), "made no clear difference to TTFT p50: from 400 ms to 392 ms, 1.0x; cold-pass overhead: none measurable"),
        (
            Made(arms=SMALL),
            later(1.0, host=0),
            "No token came from the cpu tier in pass repeat; what differs is noise (TTFT p50 from 400 ms to 400 ms",
        ),
        (Made(device_tokens=60000), later(1.0, host=0), "pass repeat, as the working set fits the pool; what differs is noise"),
        (Made(config={"reuse": 0.0}), later(1.0, host=0), "pass repeat, as nothing is read again; what differs is noise"),
        (
            Made(arms=SMALL),
            later(0.5, host=0),
            "No token came from the cpu tier in pass repeat, and TTFT p50 rose from 400 ms to 800 ms, 0.50x (slower)",
        ),
        (Made(passes=("sequential", "reverse")), later(10), "Read again in reverse, the cpu tier cut"),
        (Made(passes=("sequential", "zipf:1.1")), later(10), "Read again by zipf:1.1, the cpu tier cut"),
        (Made(passes=("sequential", "reverse", "repeat")), later(10), "Read again in order, the cpu tier cut"),
        (Made(passes=("sequential",)), later(10), "Arm cpu: cold-pass overhead: none measurable (+0.0 %)"),
        (Made(arms={"none": None}), later(10), "Only the arm none was measured"),
        (Made(arms={"cpu": 51200}), later(10), "Only the arm cpu was measured"),
    ],
)
def test_sentences(tmp_path: Path, made: Made, script: Script, words: str) -> None:
    sentences = summary_of(tmp_path, script, made).sentences
    assert len(sentences) == 1
    assert words in sentences[0]


def test_an_arm_that_was_not_reached_is_said(tmp_path: Path) -> None:
    run = Made(stop_after=30).write(tmp_path / "run", cyclic, status="interrupted")
    assert summarise(run).sentences == ("No request of the arm cpu gave a token, so nothing can be said of it.",)


def test_a_gain_within_the_noise_is_no_gain(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        host = 4864 if arm == "cpu" and index else 0
        return Answer({("none", 0): 100.0, ("none", 1): 130.0}.get((arm, index), 110.0), host=host)

    summary = summary_of(tmp_path, script)
    assert summary.sentences[0] == (
        "Unsteady times: the same work differed by 30 % within this run (arm none: passes sequential, repeat, reverse); a smaller "
        "difference is noise."
    )
    assert "made no clear difference to TTFT p50: from 130 ms to 110 ms, 1.2x; cold-pass overhead: none" in summary.sentences[1]


def test_a_faster_first_read_is_noise_and_no_cost(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(95.0 if arm == "cpu" and index == 0 else 100.0)

    summary = summary_of(tmp_path, script, Made(arms=SMALL))
    assert "cold-pass overhead: none measurable (−5.0 %, run-to-run noise 5.3 %)." in summary.sentences[0]
    assert summary.first_reads[0].cost == pytest.approx(-0.05)
    assert summary.first_reads[0].noise_of == "arms"


def test_no_sentence_says_nan_or_none(tmp_path: Path) -> None:
    for number, script in enumerate([later(1), as_published, noisy(3, 2)]):
        text = " ".join(summary_of(tmp_path / str(number), script).sentences)
        assert not re.search(r"\b(nan|None)\b", text)
