"""Workloads: exact token ids for a seed, what documents have in common, passes and their orders, and the user's own files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.config.settings import given_or
from kvbench.errors import UsageError
from kvbench.experiments.cyclic.options import DEFAULT_DOCS
from kvbench.experiments.cyclic.workload import Cyclic, make_cyclic
from kvbench.workloads.documents import MadeDocuments, TextDocuments, make_question
from kvbench.workloads.draws import Draws
from kvbench.workloads.passes import Pass, plan_passes
from tests.configs import loaded
from tests.folders import VOCAB, save_tokenizer, words, write_files

NO_TOKENIZER = Path("there-is-none")
seeds = st.integers(0, 2**63 - 1)


def workload(**values: Any) -> Cyclic:
    config = loaded(None, values)
    return make_cyclic(config, given_or(config.docs, DEFAULT_DOCS), 2048, NO_TOKENIZER)


def common_head(left: Sequence[int], right: Sequence[int]) -> int:
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return min(len(left), len(right))


# The stream: these values may never change, or runs of two versions measure different work.


def test_documents_of_seed_0() -> None:
    documents = MadeDocuments(0, 5011, 2048)
    assert documents.tokens(0)[:8] == [647, 647, 1090, 1420, 957, 826, 1523, 1883]
    assert documents.tokens(3)[:8] == [650, 647, 1748, 1448, 226, 402, 1626, 1395]
    assert (documents.tokens(0)[-1], documents.tokens(3)[-1]) == (1830, 287)
    every = ",".join(str(token) for doc in range(10) for token in documents.tokens(doc))
    assert hashlib.sha256(every.encode()).hexdigest()[:16] == "94d536fb9a47ac5c"


def test_documents_with_a_common_head_of_seed_7() -> None:
    documents = MadeDocuments(7, 100, 2048, 0.1)
    head = [924, 19, 27, 1293, 1285, 961, 1729, 54, 902, 550]
    assert documents.tokens(0)[:12] == [*head, 705, 705]
    assert documents.tokens(3)[:12] == [*head, 708, 705]


def test_questions_of_seed_0() -> None:
    same = [1162, 1121, 622, 995, 444, 218, 912, 715, 2029, 172, 1905, 898, 1453, 316]
    assert make_question(0, 14, 2048, None) == same
    assert make_question(0, 4, 2048, 1) == [160, 1415, 1356, 1261]


def test_orders_of_seed_0() -> None:
    passes = plan_passes(("sequential", "shuffle", "zipf:1.1", "repeat", "reverse"), 10, 0)
    assert passes == [
        Pass("sequential", 0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        Pass("shuffle", 1, [5, 6, 2, 7, 3, 0, 4, 8, 9, 1]),
        Pass("zipf:1.1", 2, [1, 6, 1, 3, 7, 0, 1, 0, 0, 5]),
        Pass("repeat", 3, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        Pass("reverse", 4, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
    ]


def test_draws_continue_over_the_end_of_a_block() -> None:
    draws = Draws(0, "long")
    parts = draws.integers(1000, 0, 2**63) + draws.integers(1500, 0, 2**63)
    assert parts == Draws(0, "long").integers(2500, 0, 2**63)
    assert len(set(parts)) == 2500
    assert Draws(0, "long", 1).integers(3, 0, 2**63) != parts[:3]


@given(seeds, st.integers(1, 10**6))
def test_draws_are_in_range(seed: int, high: int) -> None:
    draws = Draws(seed, "range")
    assert all(5 <= value < 5 + high for value in draws.integers(50, 5, 5 + high))
    assert all(0 <= draws.uniform() < 1 for _ in range(50))
    assert sorted(draws.shuffled(20)) == list(range(20))


# What documents have in common.


@given(seeds, st.integers(2, 40), st.integers(1, 30))
def test_two_documents_never_start_alike(seed: int, docs: int, length: int) -> None:
    documents = MadeDocuments(seed, length, 2048)
    assert len({documents.tokens(doc)[0] for doc in range(docs)}) == docs
    assert all(len(documents.tokens(doc)) == length for doc in range(docs))


@given(seeds, st.integers(2, 20))
def test_more_documents_than_token_ids_differ_in_their_first_two(seed: int, length: int) -> None:
    documents = [MadeDocuments(seed, length, 3).tokens(doc) for doc in range(9)]
    assert len({tuple(tokens[:2]) for tokens in documents}) == 9
    assert all(0 <= token < 3 for tokens in documents for token in tokens)


@given(seeds, st.integers(1, 60), st.floats(0, 1), st.integers(2, 8))
def test_overlap_is_the_common_head_and_not_a_token_more(seed: int, length: int, overlap: float, docs: int) -> None:
    documents = [MadeDocuments(seed, length, 2048, overlap).tokens(doc) for doc in range(docs)]
    assert {len(tokens) for tokens in documents} == {length}
    assert {common_head(documents[0], other) for other in documents[1:]} == {round(overlap * length)}


@given(seeds, seeds)
def test_another_seed_is_another_text(one: int, other: int) -> None:
    if one != other:
        assert MadeDocuments(one, 50, 2048).tokens(0) != MadeDocuments(other, 50, 2048).tokens(0)
        assert make_question(one, 14, 2048, None) != make_question(other, 14, 2048, None)


# Passes.


@pytest.mark.parametrize(("reuse", "kept"), [(0.0, 0), (0.3, 3), (0.5, 5), (0.96, 10), (1.0, 10)])
def test_reuse_keeps_its_share_and_brings_new_documents(reuse: float, kept: int) -> None:
    passes = plan_passes(("sequential", "repeat", "reverse"), 10, 0, reuse)
    first, second, third = (set(plan.doc_ids) for plan in passes)
    assert first == set(range(10))
    assert len(first & second) == len(first & third) == kept
    assert first & second == first & third
    assert len(first | second | third) == 10 + 2 * (10 - kept)


def test_a_document_kept_stays_at_its_place() -> None:
    first, second = plan_passes(("sequential", "repeat"), 10, 0, 0.5)
    assert all(doc == place for place, doc in enumerate(second.doc_ids) if doc in first.doc_ids)


def test_zipf_prefers_the_first_documents() -> None:
    read = [doc for seed in range(200) for doc in plan_passes(("zipf:1",), 4, seed)[0].doc_ids]
    shares = [read.count(doc) / len(read) for doc in range(4)]
    expected = [weight / (1 + 1 / 2 + 1 / 3 + 1 / 4) for weight in (1, 1 / 2, 1 / 3, 1 / 4)]
    assert shares == pytest.approx(expected, abs=0.05)


def test_the_same_question_in_every_pass_or_one_for_each() -> None:
    same, vary = workload(docs=2, doc_tokens=20), workload(docs=2, doc_tokens=20, question="vary")
    assert same.questions == [make_question(0, 14, 2048, None)] * 3
    assert len({tuple(question) for question in vary.questions}) == 3
    assert {len(question) for question in vary.questions} == {14}


def test_requests_of_a_pass() -> None:
    made = workload(docs=3, doc_tokens=20, question_tokens=2, output_tokens=5)
    requests = made.requests("cpu", 1, made.passes[2])
    assert [request.key.doc_id for request in requests] == [2, 1, 0]
    assert [request.key.position for request in requests] == [0, 1, 2]
    assert [request.key.request_id for request in requests] == ["cpu-r1-p2-0", "cpu-r1-p2-1", "cpu-r1-p2-2"]
    for request in requests:
        assert list(request.prompt) == made.documents.tokens(request.key.doc_id) + make_question(0, 2, 2048, None)
        assert request.output_tokens == 5


def test_working_set_counts_what_is_read_and_a_common_head_once() -> None:
    assert workload().working_set_tokens() == 50_110
    assert workload(docs=4, doc_tokens=100, overlap=0.25).working_set_tokens() == 25 + 4 * 75
    assert workload(docs=4, doc_tokens=100, reuse=0.5).working_set_tokens() == 400 + 2 * 200


def test_the_host_tier_by_default_holds_every_chunk_of_the_default_run() -> None:
    assert workload().working_set_chunks(256) == 10 * (5025 // 256)


# The user's own files.


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    save_tokenizer(tmp_path / "model")
    return tmp_path / "model" / "tokenizer.json"


def test_files_are_read_by_name_nested_ones_too_and_hidden_ones_are_not(tmp_path: Path, tokenizer: Path) -> None:
    folder = write_files(
        tmp_path / "texts",
        {
            "b.txt": words(5, 6, 7),
            "a/z.md": words(1),
            "a/deep/er.txt": words(2, 3),
            "c.txt": "w9 unknown w9\n",
            ".hidden": words(99),
            ".git/config": words(99),
            "a/.x/y.txt": words(99),
        },
    )
    documents = TextDocuments(folder, tokenizer, VOCAB)
    assert documents.names == ["a/deep/er.txt", "a/z.md", "b.txt", "c.txt"]
    assert [documents.tokens(doc) for doc in range(len(documents))] == [[2, 3], [1], [5, 6, 7], [9, 0, 9]]


def test_own_documents_make_the_workload(tmp_path: Path, tokenizer: Path) -> None:
    folder = write_files(tmp_path / "texts", {"a": words(1, 2, 3, 4), "b": words(1, 2, 5)})
    made = make_cyclic(loaded(None, {"documents": folder, "question_tokens": 2}), DEFAULT_DOCS, 128, tokenizer)
    assert [len(plan.doc_ids) for plan in made.passes] == [2, 2, 2]
    assert made.sizes() == [("document a", 6, 8), ("document b", 5, 8)]
    assert made.working_set_tokens() == 5


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "the folder holds no file"),
        ({".hidden": "w1"}, "the folder holds no file"),
        ({"a": "w1", "b": ""}, "b holds no text"),
        ({"a": " \n "}, "a holds no text"),
        ({"a": b"w1 \xff\xfe"}, "a is not UTF-8 text (byte 3)"),
        ({"a": b"w1\0w2"}, "a is not text (it has NUL bytes)"),
    ],
)
def test_folders_that_cannot_be_used(tmp_path: Path, tokenizer: Path, files: dict[str, str | bytes], message: str) -> None:
    folder = write_files(tmp_path / "texts", files)
    with pytest.raises(UsageError) as caught:
        TextDocuments(folder, tokenizer, VOCAB)
    assert message in str(caught.value)
    assert str(folder) in str(caught.value)


def test_no_folder(tmp_path: Path, tokenizer: Path) -> None:
    file = write_files(tmp_path, {"file": "w1"}) / "file"
    for folder in (tmp_path / "none", file):
        with pytest.raises(UsageError, match="no such folder"):
            TextDocuments(folder, tokenizer, VOCAB)


def test_no_tokenizer(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "texts", {"a": "w1"})
    with pytest.raises(UsageError, match=r"needs the model's tokenizer, and .*tokenizer\.json does not exist"):
        TextDocuments(folder, tmp_path / "tokenizer.json", VOCAB)
    broken = write_files(tmp_path, {"tokenizer.json": "{"}) / "tokenizer.json"
    with pytest.raises(UsageError, match="not a tokenizer"):
        TextDocuments(folder, broken, VOCAB)
