"""Packed linear layers: the same numbers, and the plain layer where packing is not to be had."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from engine.reference import DEVICE
from kvbench.runners.engine import packed
from kvbench.runners.engine.model import load_model
from kvbench.runners.engine.packed import PackedLinear, pack_linears


def linears(network: nn.Module) -> set[type[nn.Module]]:
    return {type(module) for module in network.modules() if isinstance(module, (nn.Linear, PackedLinear))}


@pytest.mark.skipif(DEVICE.type != "cpu", reason="packing is the CPU's")
def test_half_precision_on_the_cpu_is_packed_and_nothing_else(folder: Path) -> None:
    assert linears(load_model(str(folder), DEVICE, torch.bfloat16).network) == {PackedLinear}
    for dtype in (torch.float32, torch.float64):
        assert linears(load_model(str(folder), DEVICE, dtype).network) == {nn.Linear}


@pytest.mark.parametrize("rows", [1, 2, 8, 300])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_is_the_layer(rows: int, bias: bool) -> None:
    torch.manual_seed(rows)
    layer = nn.Linear(96, 80, bias=bias, dtype=torch.bfloat16).eval()
    inputs = torch.randn(1, rows, 96, dtype=torch.bfloat16)
    with torch.inference_mode():
        exact = layer.double()(inputs.double())
        layer.bfloat16()
        assert (PackedLinear(layer)(inputs).double() - exact).abs().max() < 4e-2  # bfloat16 keeps 8 bits
        wrong = nn.Linear(96, 80, bias=bias, dtype=torch.bfloat16)
        assert (PackedLinear(wrong)(inputs).double() - exact).abs().max() > 4e-2


def test_a_torch_that_packs_wrongly_keeps_the_plain_layer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_model(str(folder), torch.device("cpu"), torch.float32).network.bfloat16()
    monkeypatch.setattr(packed.PackedLinear, "forward", lambda self, inputs: torch.zeros(1, 5, 40, dtype=inputs.dtype))
    pack_linears(network)
    assert linears(network) == {nn.Linear}
