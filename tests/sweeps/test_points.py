"""What is swept: values read as the option itself is, refused before anything runs, and folders named after them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.sweeps.points import Planned, plan_sweep
from tests.configs import loaded


def plan(word: str, **options: Any) -> Planned:
    return plan_sweep(None, {"runner": "simulator", **options}, [word], ["kvbench", "run", "--sweep", word])


@pytest.mark.parametrize("key", ["doc-tokens", "doc_tokens", "--doc-tokens"])
def test_an_option_may_be_spelled_as_on_the_command_line_or_in_a_file(key: str) -> None:
    planned = plan(f"{key}=1000, 5011")
    assert planned.sweep.key == "doc_tokens"
    assert [point.value for point in planned.sweep.points] == [1000, 5011]
    assert [point.folder for point in planned.sweep.points] == ["doc-tokens-1000", "doc-tokens-5011"]


def test_each_point_is_the_configuration_of_a_run_with_that_option() -> None:
    planned = plan("overlap=0,0.25", docs="4")
    for config, overlap in zip(planned.configs, ("0", "0.25"), strict=True):
        assert config == loaded(None, {"runner": "simulator", "docs": "4", "overlap": overlap})
    assert [point.config for point in planned.sweep.points] == [config.resolved() for config in planned.configs]


@pytest.mark.parametrize(
    ("word", "folders"),
    [
        ("reuse=1,0.50,0", ["reuse-1", "reuse-0.5", "reuse-0"]),
        ("host-gib=auto,0.5", ["host-gib-auto", "host-gib-0.5"]),
        ("compile=on,off", ["compile-on", "compile-off"]),
        ("model=tiny,/data/models/qwen/", ["model-tiny", "model-qwen"]),
        ("model=/a/x,/b/x,/c/x", ["model-x", "model-x~2", "model-x~3"]),
        ("passes=sequential,repeat;sequential,reverse", ["passes-sequential_repeat", "passes-sequential_reverse"]),
        ("runner=engine,simulator", ["runner-engine", "runner-simulator"]),
    ],
)
def test_folders_are_named_after_the_values(word: str, folders: list[str]) -> None:
    options = {} if word.startswith(("runner", "compile")) else {"runner": "simulator"}
    planned = plan_sweep(None, options, [word], [])
    assert [point.folder for point in planned.sweep.points] == folders


@given(st.lists(st.text(min_size=1).filter(lambda text: ";" not in text and text.strip()), min_size=2, max_size=5, unique_by=str.strip))
def test_folders_differ_and_stay_below_the_sweeps_own(models: list[str]) -> None:
    folders = [point.folder for point in plan(f"model={';'.join(models)}").sweep.points]
    assert len(set(folders)) == len(folders)
    assert all(re.fullmatch(r"model-[A-Za-z0-9._+~-]*", folder) for folder in folders)


def test_options_that_take_lists_are_separated_by_semicolons() -> None:
    planned = plan("passes=sequential,repeat;sequential")
    assert [config.resolved()["passes"] for config in planned.configs] == [["sequential", "repeat"], ["sequential"]]
    assert plan("trace=a,b.jsonl;c.jsonl", experiment="trace").configs[0].resolved()["trace"] == "a,b.jsonl"


@pytest.mark.parametrize(
    ("word", "options", "message"),
    [
        ("depth=1,2", {}, "--sweep depth=1,2: there is no option depth; `kvbench run --help` lists them"),
        ("out=a,b", {}, "there is no option out"),
        ("=1,2", {}, "there is no option of that name"),
        ("reuse", {}, "--sweep reuse: a value is missing, as in reuse=V1,V2"),
        ("reuse=0,,1", {}, "a value is missing"),
        ("reuse=0.5", {}, "--sweep reuse=0.5: a sweep has two values or more; one is --reuse 0.5"),
        ("passes=sequential,repeat", {}, "--passes itself takes commas; separate its values by semicolons, in quotes: 'passes=A,B;C'"),
        ("reuse=0,.5,0.50", {}, "--sweep reuse=0,.5,0.50: 0.5 is given twice"),
        ("reuse=0,1,0", {}, "0 is given twice"),
        ("reuse=0,2", {}, "--reuse: Input should be less than or equal to 1 (got '2')"),
        ("reuse=0,1", {"reuse": "0.5"}, "--reuse and --sweep reuse=0,1: give the values in one of them"),
        ("repeats=1,2", {}, "--repeats does not apply: a prediction is the same every time"),
        ("chunk-tokens=256,250", {}, "--chunk-tokens 250 is not a multiple of --block-size 16"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(word: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as refused:
        plan(word, **options)
    assert "\n" not in str(refused.value)


def test_one_option_is_swept_at_a_time() -> None:
    with pytest.raises(UsageError, match="--sweep reuse=0,1 and --sweep docs=4,5: one option is swept at a time"):
        plan_sweep(None, {}, ["reuse=0,1", "docs=4,5"], [])


def test_secrets_among_the_values_are_masked() -> None:
    word = "env=HF_TOKEN=secret-a;X=b"
    planned = plan_sweep(None, {"runner": "vllm"}, [word], ["kvbench", "run", "--sweep", word])
    assert planned.configs[0].model_dump()["env"] == ("HF_TOKEN=secret-a",)
    assert "secret-a" not in str(planned.sweep)
