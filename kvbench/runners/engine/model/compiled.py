"""``--compile``: the model through torch's compiler, with paged attention as one operator that it does not look into.

The operator cannot take the step as an argument, so the step being run is kept here for the length of one call. It writes KV to the
pool, which the compiler does not know and need not: nothing else in the graph reads the pool, and every call's output is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface

from kvbench.runners.engine.model.attention import PagedStep

NAME = "kvbench_paged_compiled"

_steps: list[PagedStep] = []


@contextmanager
def running(step: PagedStep) -> Iterator[None]:
    """Make this the step that compiled layers attend for."""
    _steps.append(step)
    try:
        yield
    finally:
        _steps.pop()


@torch.library.custom_op("kvbench::paged_attention", mutates_args=())
def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int, scaling: float) -> torch.Tensor:
    return _steps[-1](layer, query, key, value, scaling)


@_attend.register_fake
def _shape_of(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int, scaling: float) -> torch.Tensor:
    _, heads, rows, head_dim = query.shape
    return query.new_empty(1, rows, heads, head_dim)


def _paged_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _mask: torch.Tensor | None, *, scaling: float, **_others: Any
) -> tuple[torch.Tensor, None]:
    """What transformers calls in each layer of a compiled model, already probed uncompiled."""
    return _attend(query, key, value, module.layer_idx, scaling), None


AttentionInterface.register(NAME, _paged_attention)


def compile_network(network: Any) -> None:
    """Compile a probed network in place; on the CPU its weights become constants, packed for the matrix kernels.

    The first call compiles, which takes minutes on two cores. From then on only its arguments are checked: nothing changes the network.
    """
    from torch._inductor import config as inductor  # half a second of imports that an uncompiled run need not pay

    network.set_attn_implementation(NAME)
    # As options of ``compile`` these come too late: the weights are arguments of the graph by then, and stay as they were loaded.
    inductor.freezing = network.device.type == "cpu"
    inductor.cpp.enable_concat_linear = True  # Q, K and V are one product
    network.compile(dynamic=True, options={"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe})


def at_least_two(items: list[int]) -> list[int]:
    """The items, padded to two: the compiler makes graphs of their own for sizes 0 and 1, each as long in the making as the first."""
    return items if len(items) > 1 else (items or [0]) * 2
