"""Keys of KV content: equal exactly when the whole prefix is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvbench.runners.engine.kv.key_chain import KeyChain
from tests.runners.engine.driver import FakeEngine
from tests.runners.engine.kv.test_pool_machine import FAST

TOKENS = st.lists(st.integers(0, 1), max_size=12)


def keys(tokens: list[int], unit: int = 2, salt: bytes = b"salt") -> list[bytes]:
    chain = KeyChain(unit, salt)
    chain.extend(tokens)
    return chain.keys


@FAST
@given(TOKENS, TOKENS, st.integers(1, 4))
def test_keys_are_equal_exactly_if_the_whole_prefixes_are(one: list[int], other: list[int], unit: int) -> None:
    first, second = keys(one, unit), keys(other, unit)
    assert len(first) == len(one) // unit
    for i, key in enumerate(first):
        for j, other_key in enumerate(second):
            assert (key == other_key) == (one[: (i + 1) * unit] == other[: (j + 1) * unit])


@FAST
@given(TOKENS, st.integers(1, 4), st.lists(st.integers(0, 12), max_size=5))
def test_a_chain_built_in_pieces_is_the_one_built_at_once(tokens: list[int], unit: int, ends: list[int]) -> None:
    chain = KeyChain(unit, b"salt")
    for end in [*sorted(ends), len(tokens)]:
        chain.extend(tokens[:end])
    assert chain.keys == keys(tokens, unit)


def test_the_same_unit_after_another_parent_has_another_key() -> None:
    assert keys([1, 2, 7, 8])[1] != keys([1, 3, 7, 8])[1]
    assert keys([7, 8, 7, 8])[0] != keys([7, 8, 7, 8])[1]


def test_units_do_not_run_together() -> None:
    assert keys([1, 256], unit=1) != keys([256, 1], unit=1)
    assert keys([0, 0, 0, 0], unit=2)[0] != keys([0, 0, 0, 0], unit=4)[0]
    assert keys([2**40, 1])[0] != keys([1, 2**40])[0]


def test_another_salt_gives_other_keys() -> None:
    assert not set(keys([1, 2, 3, 4], salt=b"one")) & set(keys([1, 2, 3, 4], salt=b"two"))


def test_every_engine_has_a_salt_of_its_own() -> None:
    first, second = (FakeEngine(4).run([([1] * 5, 1)])[0].block_keys.keys for _ in range(2))
    assert len(first) == len(second) == 1
    assert first != second
