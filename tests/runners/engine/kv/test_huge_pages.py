"""Memory for KV: zeros that can be written, in huge pages or not, and one clear error where there is not enough."""

from __future__ import annotations

import mmap

import psutil
import pytest
import torch

from kvbench.errors import OutOfMemory
from kvbench.runners.engine.kv import huge_pages
from kvbench.runners.engine.runner import memory_errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 2, 5, 16, 1, 4), (1,), (2, 0, 3), (2**19, 3)])
def test_zeros_of_the_shape_that_can_be_written(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    made = huge_pages.zeros(shape, dtype)
    assert (made.shape, made.dtype) == (shape, dtype)
    assert made.is_contiguous()
    assert not made.any()
    made.fill_(1)
    assert bool((made == 1).all())


def test_every_page_is_touched() -> None:
    before = psutil.Process().memory_info().rss
    made = huge_pages.zeros((2**26,), torch.bfloat16)
    assert psutil.Process().memory_info().rss - before > 0.9 * made.nbytes


def test_two_do_not_share_their_memory_and_a_view_keeps_it() -> None:
    first = huge_pages.zeros((4,), torch.float32)[1:]
    second = huge_pages.zeros((4,), torch.float32)
    first.fill_(1)
    assert not second.any()
    assert first.tolist() == [1, 1, 1]


def test_a_system_without_huge_pages_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert huge_pages.zeros((2, 3), torch.float32).tolist() == [[0, 0, 0]] * 2


def test_a_kernel_that_refuses_them_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", -1, raising=False)
    assert huge_pages.zeros((2, 3), torch.float32).tolist() == [[0, 0, 0]] * 2


def test_too_much_memory_is_one_line() -> None:
    with pytest.raises(OutOfMemory, match="lower --kv-tokens"), memory_errors():
        huge_pages.zeros((2**50,), torch.float32)
