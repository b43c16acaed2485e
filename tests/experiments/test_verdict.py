"""The verdict on a run: no sentence claims what tokens or noise contradict, and every report says it alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.analysis.known_noise import KnownNoise
from kvbench.cli.main import main
from kvbench.experiments.verdict import NOTICEABLE, UNSTEADY, Claim, claim
from kvbench.reports.formats import markdown, terminal
from kvbench.summary.summary import Summary, summarise
from tests.made import Answer, Made, Script

CLAIMS = r"\b(cut|raised|rose)\b"
MS = st.sampled_from([1.0, 9.0, 10.0, 10.4, 11.0, 13.0, 26.0, 100.0])
SMALL = {"none": None, "cpu": 64}
"""A tier so small that it need not give anything."""


def script_of(times: dict[tuple[str, int, int], float], host: int | None) -> Script:
    """The same time for each request of a pass and repeat; ``host``: what each later request of ``cpu`` gets from its tier."""

    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer(times[arm, repeat, index], host=host if arm == "cpu" and index else 0)

    return script


def summary_of(folder: Path, times: dict[tuple[str, int, int], float], host: int | None, fits: bool, reuse: float) -> Summary:
    repeats = 1 + max(repeat for _, repeat, _ in times)
    made = Made(arms=SMALL, passes=("sequential", "repeat"), docs=3, document=600, repeats=repeats)
    made.device_tokens, made.config = 4096 if fits else 512, {"reuse": reuse}
    return summarise(made.write(folder, script_of(times, host)))


@st.composite
def tables(draw: st.DrawFn) -> dict[tuple[str, int, int], float]:
    """TTFT by arm, repeat and pass index."""
    repeats = draw(st.integers(1, 3))
    keys = [(arm, repeat, index) for arm in SMALL for repeat in range(repeats) for index in range(2)]
    return dict(zip(keys, draw(st.lists(MS, min_size=len(keys), max_size=len(keys))), strict=True))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables(), st.sampled_from([0, 256, None]), st.booleans(), st.sampled_from([0.0, 1.0]))
def test_no_sentence_claims_what_tokens_or_noise_contradict(
    times: dict[tuple[str, int, int], float], host: int | None, fits: bool, reuse: float
) -> None:
    with TemporaryDirectory() as folder:
        summary = summary_of(Path(folder) / "run", times, host, fits, reuse)
    said, [arm] = " ".join(summary.sentences), summary.verdict.arms
    own = next(row for row in summary.passes if (row.arm, row.pass_index) == ("cpu", 1))
    ratio, interval = own.speedup.p50 or 1.0, own.speedup.p50_interval
    known = [row.noise for row in summary.passes if row.noise is not None]
    known += [cost.noise for cost in summary.first_reads if cost.noise is not None]
    noise = max(known, default=None)

    if host == 0 or (host is None and (fits or not reuse)):  # no token came from the tier
        assert "cut TTFT" not in said
        assert arm.kind in (Claim.NOTHING, Claim.SLOWER)
    if noise is None or 1 / (1 + noise) <= ratio <= 1 + noise or (interval is not None and interval[0] <= 1 <= interval[1]):
        assert re.search(CLAIMS, said) is None
    for verb, kind in (("cut TTFT", Claim.FASTER), ("(slower)", Claim.SLOWER)):
        assert (verb in said) == (arm.kind == kind)
    costs = re.findall(r"overhead: ([+−])([\d.,]+)", said)  # of a cost that is claimed
    assert all(sign == "+" and (noise is None or float(share.replace(",", "")) / 100 >= round(noise, 3)) for sign, share in costs)
    assert (noise is not None and noise > UNSTEADY) == summary.sentences[0].startswith("Unsteady times: ")
    assert summary.verdict.standing == ("unknown" if noise is None else "unsteady" if noise > UNSTEADY else "steady")


@pytest.mark.parametrize(
    ("ratio", "interval", "noise", "kind"),
    [
        (2.6, None, None, Claim.UNKNOWN),
        (2.6, None, 0.01, Claim.FASTER),
        (2.6, None, 2.0, Claim.SAME),
        (1 + NOTICEABLE, None, 0.0, Claim.SAME),
        (1.02, (1.01, 1.03), 0.01, Claim.FASTER),
        (1.02, (1.01, 1.03), 0.05, Claim.SAME),
        (2.6, (0.9, 7.0), 0.01, Claim.SAME),
        (0.5, None, 0.9, Claim.SLOWER),
        (0.5, None, 1.1, Claim.SAME),
        (None, None, 0.1, Claim.UNKNOWN),
    ],
)
def test_a_claim_is_beyond_noise_and_interval(
    ratio: float | None, interval: tuple[float, float] | None, noise: float | None, kind: Claim
) -> None:
    assert claim(ratio, interval, None if noise is None else KnownNoise(noise, "repeats", "here")) is kind


# A run whose arm was 2.6 times as fast although not one token came from its tier.

LUCKY: dict[tuple[str, int, int], float] = {("none", 0, 0): 100.0, ("none", 0, 1): 26.0, ("cpu", 0, 0): 100.0, ("cpu", 0, 1): 10.0}


def test_a_gain_without_a_token_from_the_tier_is_noise(tmp_path: Path) -> None:
    summary = summary_of(tmp_path / "run", LUCKY, 0, False, 1.0)
    assert summary.sentences == (
        "Unsteady times: the same work differed by 285 % within this run (arm none: passes sequential, repeat); a smaller difference is "
        "noise.",
        "No token came from the cpu tier in pass repeat; what differs is noise (TTFT p50 from 26.0 ms to 10.0 ms, 2.6x); cold-pass "
        "overhead: none measurable (+0.0 %, run-to-run noise 284.6 %).",
    )
    assert any(note.startswith("unsteady times (noise 285 %; token counts are exact)") for note in summary.notes)
    for text in (terminal.render(summary), markdown.render(summary)):
        assert "Unsteady times: the same work differed by 285 %" in text.replace("\n", " ")
    found = summary.to_json()["verdict"]
    assert (found["standing"], found["words"]) == ("unsteady", summary.sentences[0])
    assert [(arm["arm"], arm["kind"], arm["words"]) for arm in found["arms"]] == [("cpu", "no token from the tier", summary.sentences[1])]


def test_the_page_says_it_in_the_box_at_its_top(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary_of(tmp_path / "run", LUCKY, 0, False, 1.0)
    assert main(["report", str(tmp_path / "run"), "--format", "html"]) == 0
    assert re.search(r'<h1>.*</h1>\n<p class="said bad">Unsteady times: ', capsys.readouterr().out)


def test_an_invalid_run_says_so_first_and_claims_nothing(tmp_path: Path) -> None:
    """The tier is large enough that it must give something."""
    made = Made(arms={"none": None, "cpu": 51200}, docs=3, document=600, device_tokens=512, passes=("sequential", "repeat"))
    summary = summarise(made.write(tmp_path / "run", script_of(LUCKY, 0)))
    assert summary.sentences[0] == "Invalid measurement (1 reason below): no conclusion can be drawn from its figures."
    assert summary.sentences[1] == "TTFT p50 in pass repeat: 10.0 ms on cpu, 26.0 ms on none."
    assert [(arm.kind, arm.words) for arm in summary.verdict.arms] == [("invalid", summary.sentences[1])]
    assert (summary.verdict.standing, len(summary.reasons)) == ("invalid", 1)


def test_a_comparison_says_it_alike_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calm = dict.fromkeys(LUCKY, 100.0)
    for name, times in (("base", calm), ("new", LUCKY)):
        summary_of(tmp_path / name, times, 0, False, 1.0)
    assert main(["baseline", str(tmp_path / "new"), "-o", str(tmp_path / "new.json")]) == 0
    assert "within this run" in json.loads((tmp_path / "new.json").read_text())["unsteady"][0]
    for new in ("new", "new.json"):
        for kind in ("terminal", "markdown", "github", "junit", "json"):
            main(["compare", str(tmp_path / "base"), str(tmp_path / new), "--format", kind])
            text = " ".join(capsys.readouterr().out.split())
            assert "The new run has unsteady times: the same work differed by 285 % within this run" in text
            assert "The base has" not in text
    assert '<skipped message="The new run has unsteady times' in junit_of(tmp_path, capsys)


def junit_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    main(["compare", str(folder / "base"), str(folder / "new"), "--format", "junit"])
    return capsys.readouterr().out
