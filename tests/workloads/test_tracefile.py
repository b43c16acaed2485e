"""Trace files: what each format is read as, and the one line that every fault gets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.workloads.traces.blocks import distinct_blocks
from kvbench.workloads.traces.trace import UNKNOWN, MadeBlocks, Prompts
from tests.folders import VOCAB, save_tokenizer, words
from tests.traces import EXCERPT, hashed, read_trace, write_trace

TEMPLATE = """{{ bos_token }}{% for message in messages %}
{% if message['role'] not in ['w1', 'w2'] %}{{ raise_exception('no such role') }}{% endif %}
 {{ message['role'] }} {{ message['content'] | trim }} w9{% endfor %}
{% if add_generation_prompt %} w2{% endif %}"""
CHAT = [{"role": "w1", "content": " w30 w31"}, {"role": "w2", "content": "w32"}, {"role": "w1", "content": "w33"}]


def save_chat_model(folder: Path, **more: Any) -> Path:
    """A tokenizer that begins a prompt with w127, with a chat template, as transformers saves it; returns ``tokenizer.json``."""
    from tokenizers import Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    save_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(single="w127 $A", special_tokens=[("w127", 127)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="w127", chat_template=TEMPLATE, **more).save_pretrained(folder)
    return folder / "tokenizer.json"


def test_a_real_trace() -> None:
    trace = read_trace(EXCERPT)
    assert (len(trace), len(trace.ids), trace.left_out, trace.block_tokens) == (77, 413, 0, 512)
    assert (trace.lines[0], trace.prompt_tokens[0], trace.output_tokens[0], list(trace.ids_of(0))) == (1, 2290, 316, [0, 42, 43, 44, 45])
    assert trace.times_s is not None
    assert (trace.times_s[0], trace.times_s[-1]) == (0.0, 2949.0)  # the file has milliseconds


def test_distinct_blocks_and_where_they_lie() -> None:
    blocks = distinct_blocks(read_trace(EXCERPT))
    assert (len(blocks.ids), int((blocks.ends - blocks.starts).sum())) == (159, 61_545)
    assert (blocks.starts[0], blocks.ends[0]) == (0, 512)


def test_a_block_counts_as_long_as_it_is_where_it_is_longest(tmp_path: Path) -> None:
    blocks = distinct_blocks(read_trace(write_trace(tmp_path / "a.jsonl", [hashed(1, 2, tokens=700), hashed(1, 2, tokens=600)])))
    assert (list(blocks.ids), list(blocks.starts), list(blocks.ends)) == ([1, 2], [0, 512], [512, 700])


def test_token_ids_with_and_without_the_rest(tmp_path: Path) -> None:
    lines = [
        {"token_ids": [5, 6, 7], "timestamp": 10, "output_tokens": 3, "max_tokens": 9},
        {"token_ids": [5], "timestamp": 10.5, "max_tokens": 9},
        {"token_ids": [7], "timestamp": 12, "output_tokens": None, "other": "is not looked at"},
    ]
    trace = read_trace(write_trace(tmp_path / "own.jsonl", lines))
    assert (list(trace.prompt_tokens), list(trace.output_tokens), trace.block_tokens) == ([3, 1, 1], [3, 9, UNKNOWN], None)
    assert trace.times_s is not None
    assert list(trace.times_s) == [10.0, 10.5, 12.0]
    assert [list(Prompts(trace, 0, 100)[index]) for index in range(3)] == [[5, 6, 7], [5], [7]]


def test_a_trace_without_times(tmp_path: Path) -> None:
    assert read_trace(write_trace(tmp_path / "a.jsonl", [{"token_ids": [5]}])).times_s is None
    without = {name: value for name, value in hashed(1, tokens=5).items() if name != "timestamp"}
    assert read_trace(write_trace(tmp_path / "b.jsonl", [without])).times_s is None


def test_a_prompt_has_the_special_tokens_that_a_server_would_add(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path / "own.jsonl", [{"prompt": words(3, 4)}]), save_chat_model(tmp_path / "model"))
    assert list(trace.ids_of(0)) == [127, 3, 4]


@pytest.mark.parametrize("inside", [False, True], ids=["chat_template.jinja", "tokenizer_config.json"])
def test_messages_are_what_transformers_makes_of_them(tmp_path: Path, inside: bool) -> None:
    from transformers import AutoTokenizer

    tokenizer = save_chat_model(tmp_path / "model")
    if inside:
        template, config = tokenizer.parent / "chat_template.jinja", tokenizer.parent / "tokenizer_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": template.read_text()}))
        template.unlink()
    expected = AutoTokenizer.from_pretrained(tokenizer.parent).apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    trace = read_trace(write_trace(tmp_path / "own.jsonl", [{"messages": CHAT}]), tokenizer)
    assert list(trace.ids_of(0)) == expected == [127, 1, 30, 31, 9, 2, 32, 9, 1, 33, 9, 2]


def test_parts_of_a_message_are_joined_and_other_than_text_is_refused(tmp_path: Path) -> None:
    tokenizer = save_chat_model(tmp_path / "model")
    parts = [{"type": "text", "text": "w5"}, {"type": "text", "text": "w6"}]
    trace = read_trace(write_trace(tmp_path / "a.jsonl", [{"messages": [{"role": "w1", "content": parts}]}]), tokenizer)
    assert list(trace.ids_of(0)) == [127, 1, 5, 6, 9, 2]
    image = [{"type": "image_url", "image_url": "x"}]
    with pytest.raises(UsageError, match=r"line 1: a part of a message's content is not text"):
        read_trace(write_trace(tmp_path / "b.jsonl", [{"messages": [{"role": "w1", "content": image}]}]), tokenizer)
    with pytest.raises(UsageError, match=r"line 1: the model's chat template refuses the messages \(no such role\)"):
        read_trace(write_trace(tmp_path / "c.jsonl", [{"messages": [{"role": "w3", "content": "w4"}]}]), tokenizer)


def test_text_without_a_tokenizer_or_a_template(tmp_path: Path) -> None:
    prompt = write_trace(tmp_path / "a.jsonl", [{"prompt": "w1"}])
    with pytest.raises(UsageError, match=r"--trace needs the model's tokenizer, and nowhere does not exist"):
        read_trace(prompt)
    save_tokenizer(tmp_path / "model")
    with pytest.raises(UsageError, match=r"model has no chat template for messages"):
        read_trace(write_trace(tmp_path / "b.jsonl", [{"messages": CHAT}]), tmp_path / "model" / "tokenizer.json")


GOOD = hashed(1, 2, tokens=600, time_ms=500)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ([], "the file holds no request"),
        (["", "  "], "the file holds no request"),
        (["{"], "line 1: not JSON"),
        ([GOOD, GOOD, '{"timestamp": 5, "input_len'], "line 3: not JSON"),
        ([GOOD, "", "[1]"], r"line 3: no object but \[1\]"),
        (["[" * 100_000], "line 1: not JSON"),
        ([{"text": "hello", "time": 1}], r"line 1: of no form that is known .*; its keys: text, time"),
        ([{}], "its keys: none"),
        ([GOOD, {**GOOD, "timestamp": 499}], "line 2: timestamp 499 lies before that of the line ahead"),
        ([GOOD, {**GOOD, "timestamp": None}], "line 2: timestamp is a number of milliseconds from 0, not missing"),
        ([{**GOOD, "timestamp": "soon"}], 'line 1: timestamp is a number of milliseconds from 0, not "soon"'),
        ([{**GOOD, "timestamp": -1}], "line 1: timestamp is a number"),
        ([{**GOOD, "timestamp": float("nan")}], "line 1: timestamp is a number"),
        ([GOOD, {"timestamp": 500, "token_ids": [1]}], "line 2: input_length is a whole number from 1 to .*, not missing"),
        ([{**GOOD, "input_length": 512}], "line 1: input_length 512 takes 1 blocks of 512, and there are 2 hash_ids; --trace-block-size"),
        (
            [GOOD, {**GOOD, "input_length": 1025}],
            "line 2: hash_ids are of full blocks only, or of every block",
        ),
        ([{**GOOD, "input_length": -600}], "line 1: input_length is a whole number from 1"),
        ([{**GOOD, "input_length": 600.0}], "line 1: input_length is a whole number from 1"),
        ([{**GOOD, "input_length": True}], "line 1: input_length is a whole number from 1"),
        ([{**GOOD, "output_length": -1}], "line 1: output_length is a whole number from 0"),
        ([{**GOOD, "hash_ids": [7, 7]}], "line 1: hash id 7 comes twice"),
        ([{**GOOD, "hash_ids": [7, -7]}], "line 1: hash_ids are whole numbers from 0 to .*, not -7"),
        ([{**GOOD, "hash_ids": "7"}], 'line 1: hash_ids is a list of whole numbers, not "7"'),
        ([{"token_ids": []}], "line 1: the prompt holds no token"),
        ([{"token_ids": [1, 100]}], "line 1: token id 100, and the model's vocabulary ends at 99"),
        ([{"token_ids": [1, "2"]}], 'line 1: token_ids are whole numbers from 0 to .*, not "2"'),
        ([{"token_ids": [1]}, {"output_tokens": 1}], "line 2: one of prompt, .*, prompt_token_ids is expected, not none"),
        (
            [{"token_ids": [1], "prompt": "a"}],
            "line 1: one of prompt, .*, prompt_token_ids is expected, not prompt and token_ids",
        ),
        ([{"prompt": 5}], "line 1: prompt is a text or a list of token ids, not 5"),
        ([{"messages": "hello"}], 'line 1: messages is a list of objects with role and content, not "hello"'),
        ([{"token_ids": [1], "output_tokens": "all"}], 'line 1: output_tokens is a whole number from 0 to .*, not "all"'),
        ([{"token_ids": [1]}, {"token_ids": [1], "timestamp": 3}], "line 2: a timestamp, and the lines ahead have none"),
        ([{"token_ids": [1], "timestamp": 1.76e12}], "line 1: timestamp .* is not in seconds, or beyond the year 5000"),
        ([{**GOOD, "timestamp": 10**400}], r"line 1: timestamp 10+\.\.\. is not in milliseconds, or beyond the year 5000"),
        ([{**GOOD, "timestamp": 1.76e18}], "line 1: timestamp .* is not in milliseconds"),
    ],
)
def test_every_fault_is_one_line_that_names_the_place(tmp_path: Path, lines: list[dict[str, Any] | str], fault: str) -> None:
    file = write_trace(tmp_path / "bad.jsonl", lines)
    with pytest.raises(UsageError, match=fault) as caught:
        read_trace(file, vocab=100)
    assert str(caught.value).startswith(f"--trace {file}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for file, reason in ((tmp_path, "Is a directory"), (tmp_path / "none.jsonl", "No such file")):
        with pytest.raises(UsageError, match=f"--trace {file}: cannot be read \\({reason}"):
            read_trace(file)
    broken = tmp_path / "latin.jsonl"
    broken.write_bytes(b'{"prompt": "\xe9"}\n')
    with pytest.raises(UsageError, match="line 1: not JSON"):
        read_trace(broken)
    packed = tmp_path / "trace.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(GOOD).encode()))
    with pytest.raises(UsageError, match="a gzip file; unpack it first"):
        read_trace(packed)


def test_lines_behind_the_limit_are_not_read(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path / "a.jsonl", [GOOD, GOOD, "broken"]), limit=2)
    assert len(trace) == 2


def test_larger_prompts_are_left_out_and_counted(tmp_path: Path) -> None:
    file = write_trace(tmp_path / "a.jsonl", [GOOD, hashed(1, tokens=500, time_ms=700), hashed(1, 3, tokens=601, time_ms=800)])
    trace = read_trace(file, max_prompt_tokens=600)
    assert (list(trace.lines), trace.left_out, list(trace.starts)) == ([1, 2], 1, [0, 2, 3])
    with pytest.raises(UsageError, match="all 3 requests are above --max-prompt-tokens 499; raise it"):
        read_trace(file, max_prompt_tokens=499)


def test_another_block_size(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path / "a.jsonl", [hashed(1, 2, 3, tokens=40)]), block_tokens=16)
    assert (trace.block_tokens, len(Prompts(trace, 0, 99)[0])) == (16, 40)


# Prompts of hash ids.


def test_equal_ids_are_equal_tokens_and_a_prompt_ends_inside_its_last_block(tmp_path: Path) -> None:
    file = write_trace(tmp_path / "a.jsonl", [hashed(8, 9, tokens=700), hashed(8, 9, 4, tokens=1100), hashed(5, tokens=512)])
    prompts = Prompts(read_trace(file), 3, 2048)
    first, second, third = (list(prompts[index]) for index in range(3))
    assert [len(first), len(second), len(third)] == [700, 1100, 512] == [len(prompts[index]) for index in range(3)]
    assert second[:700] == first
    assert third[0] != first[0]
    assert list(prompts[0]) == first  # gone through again
    assert (prompts[0][-1], prompts[0][510:515]) == (first[-1], first[510:515])
    assert all(0 <= token < 2048 for token in second)
    assert list(Prompts(read_trace(file), 4, 2048)[0]) != first


@settings(deadline=None, derandomize=True)
@given(st.integers(2, 3000), st.lists(st.integers(0, 2**62 - 1), min_size=2, max_size=20, unique=True), st.integers(0, 5))
def test_different_ids_differ_in_their_first_tokens(vocab: int, ids: list[int], seed: int) -> None:
    blocks = MadeBlocks(seed, 512, vocab)
    digits = next(count for count in range(1, 64) if vocab**count >= 2**62)
    heads = [tuple(blocks.tokens(hash_id)[:digits]) for hash_id in ids]
    assert len(set(heads)) == len(ids)
    assert all(len(blocks.tokens(hash_id)) == 512 and set(blocks.tokens(hash_id)) <= set(range(vocab)) for hash_id in ids[:2])


def test_neighbouring_ids_differ_in_the_very_first_token() -> None:
    blocks = MadeBlocks(0, 16, VOCAB)
    assert len({blocks.tokens(hash_id)[0] for hash_id in range(VOCAB)}) == VOCAB


def test_the_tokens_of_a_hash_id_are_the_same_for_ever() -> None:
    assert MadeBlocks(0, 512, 2048).tokens(42)[:10] == [689, 647, 647, 647, 647, 647, 75, 43, 807, 883]
