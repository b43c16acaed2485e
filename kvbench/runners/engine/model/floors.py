"""What this device multiplies and copies in a second: the floors under recomputing a history and under restoring it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.model.packed import PackedLinear

LASTS_S = 0.3
"""How long each of the two is measured; the best round counts."""

AREA = 256 << 20
"""Bytes on each side that are copied in turn: more than a cache keeps, so that every round reads memory."""


def measure_floors(model: Model, history: int, budget: int) -> dict[str, Any]:
    """Rates of this device, and what of the model they apply to, as the manifest keeps them.

    ``matrix_flops_per_s``: of products of the shapes of one layer's weights, for as many rows as a step recomputes.
    ``copy_bytes_per_s``: from host memory (pinned on CUDA) to the device, in pieces as large as the history's KV.
    ``matrix_parameters``: weights of those products in all layers, embeddings not among them. ``heads``: query heads of a layer.

    ``history``: tokens to bring back. ``budget``: tokens that a step computes at most.
    """
    shapes = layer_products(model)
    weights = sum(inputs * outputs for inputs, outputs in shapes)
    rows = min(history, budget)
    return {
        "matrix_flops_per_s": 2 * rows * weights / _products_s(model, shapes, rows),
        "copy_bytes_per_s": _copy_rate(model.network.device, history * model.shape.bytes_per_token),
        "matrix_parameters": weights * model.shape.layers,
        "heads": model.network.config.num_attention_heads,
    }


def layer_products(model: Model) -> list[tuple[int, int]]:
    """Inputs and outputs of each weight of a layer: four of attention, three of the gated MLP that all architectures let in have."""
    config, head = model.network.config, model.shape.head_dim
    hidden, inner, heads, kv = config.hidden_size, config.intermediate_size, config.num_attention_heads * head, model.shape.kv_heads * head
    return [(hidden, heads), (hidden, kv), (hidden, kv), (heads, hidden), (hidden, inner), (hidden, inner), (inner, hidden)]


@torch.inference_mode()
def _products_s(model: Model, shapes: list[tuple[int, int]], rows: int) -> float:
    """Seconds of all products of a layer, one after the other, by the kind of layer that the model has."""
    device, dtype = model.network.device, model.shape.dtype
    packed = any(isinstance(module, PackedLinear) for module in model.network.modules())
    plain = [nn.Linear(inputs, outputs, bias=False, device=device, dtype=dtype) for inputs, outputs in shapes]
    products: list[nn.Module] = [PackedLinear(layer.weight, layer.bias) for layer in plain] if packed else [*plain]
    given = [torch.randn(1, rows, inputs).to(device, dtype) for inputs, _ in shapes]

    def multiply() -> None:
        for product, rows_given in zip(products, given, strict=True):
            product(rows_given)

    return _best_s(multiply, device)


def _copy_rate(device: torch.device, size: int) -> float:
    """Bytes a second."""
    words = min(size, AREA) // 8
    host = torch.ones(AREA // 8, dtype=torch.int64, pin_memory=device.type == "cuda")
    there = torch.zeros(AREA // 8, dtype=torch.int64, device=device)
    begin = 0

    def copy() -> None:
        nonlocal begin
        there[begin : begin + words].copy_(host[begin : begin + words], non_blocking=True)
        begin = begin + words if begin + 2 * words <= len(host) else 0

    return words * 8 / _best_s(copy, device)


def _best_s(work: Callable[[], None], device: torch.device) -> float:
    """Seconds of the fastest round, after one that is thrown away."""
    rounds: list[float] = []
    end = time.perf_counter() + LASTS_S
    while len(rounds) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        rounds.append(time.perf_counter() - begin)
    return min(rounds[1:])
