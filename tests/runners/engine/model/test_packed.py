"""Packed linear layers: the same numbers, and the plain layer where packing is not to be had."""

from __future__ import annotations

import copy
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from kvbench.runners.engine.model import packed
from kvbench.runners.engine.model.model import load_model
from kvbench.runners.engine.model.packed import SIBLINGS, PackedLinear, PackedSibling, pack_linears
from tests.runners.engine.reference import DEVICE, WatchedEngine, draw


def linears(network: nn.Module) -> set[type[nn.Module]]:
    return {type(module) for module in network.modules() if isinstance(module, (nn.Linear, PackedLinear, PackedSibling))}


@pytest.mark.skipif(DEVICE.type != "cpu", reason="packing is the CPU's")
def test_half_precision_on_the_cpu_is_packed_and_nothing_else(folder: Path) -> None:
    assert linears(load_model(str(folder), DEVICE, torch.bfloat16).network) == {PackedLinear, PackedSibling}
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
        assert (PackedLinear(layer.weight, layer.bias)(inputs).double() - exact).abs().max() < 4e-2  # bfloat16 keeps 8 bits
        wrong = nn.Linear(96, 80, bias=bias, dtype=torch.bfloat16)
        assert (PackedLinear(wrong.weight, wrong.bias)(inputs).double() - exact).abs().max() > 4e-2


def test_a_torch_that_packs_wrongly_keeps_the_plain_layer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_model(str(folder), torch.device("cpu"), torch.float32).network.bfloat16()
    monkeypatch.setattr(packed.PackedLinear, "forward", lambda self, inputs: torch.zeros(1, 5, 40, dtype=inputs.dtype))
    pack_linears(network)
    assert linears(network) == {nn.Linear}


class Attention(nn.Module):
    """Projections as transformers names them, in half precision on the CPU."""

    def __init__(self, biases: tuple[bool, bool, bool] = (True, True, True)) -> None:
        super().__init__()
        for name, out, bias in zip(SIBLINGS, (96, 32, 32), biases, strict=True):
            setattr(self, name, nn.Linear(96, out, bias=bias))
        self.bfloat16()
        self.device, self.dtype = torch.device("cpu"), torch.bfloat16

    def call(self, name: str, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = getattr(self, name)(inputs)
        return output


@pytest.mark.parametrize("order", [SIBLINGS, SIBLINGS[::-1], ("k_proj", "k_proj", "v_proj", "q_proj", "v_proj")])
@pytest.mark.parametrize("bias", [True, False])
def test_siblings_give_what_each_layer_gives_in_any_order(order: tuple[str, ...], bias: bool) -> None:
    torch.manual_seed(0)
    module = Attention((bias,) * 3)
    plain = copy.deepcopy(module)
    pack_linears(module)
    assert linears(module) == {PackedSibling}
    with torch.inference_mode():
        for rows in (1, 8, 300):
            first, second = (torch.randn(1, rows, 96, dtype=torch.bfloat16) for _ in range(2))
            for name in order:
                for inputs in (first, second, second):  # a sibling is asked for another tensor before the others had theirs
                    expected = plain.call(name, inputs)
                    assert (module.call(name, inputs) - expected).float().abs().max() < 4e-2
            calls = [(module.call(name, first) - plain.call(name, second)).float().abs().max() for name in order]
            assert min(calls) > 4e-2  # the bound would show an answer kept from another tensor


def test_siblings_share_one_product_and_keep_nothing_afterwards() -> None:
    module = Attention()
    pack_linears(module)
    inputs = torch.randn(1, 8, 96, dtype=torch.bfloat16)
    with torch.inference_mode():
        outputs = [module.call(name, inputs) for name in SIBLINGS]
    assert len({output.untyped_storage().data_ptr() for output in outputs}) == 1
    kept = weakref.ref(inputs)
    del inputs
    assert kept() is None


@pytest.mark.skipif(DEVICE.type != "cpu", reason="packing is the CPU's")
def test_a_layer_computes_each_product_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(str(folder), DEVICE, torch.bfloat16)
    widths: list[int] = []
    forward = PackedLinear.forward

    def noted(linear: PackedLinear, inputs: torch.Tensor) -> torch.Tensor:
        output = forward(linear, inputs)
        widths.append(output.shape[-1])
        return output

    monkeypatch.setattr(PackedLinear, "forward", noted)
    WatchedEngine(model).run([(draw(1, 9), 1)])
    assert widths == [128, 64, 96, 96, 64] * 2 + [512]  # Q, K and V; output; gate, up and down; the vocabulary


def test_siblings_of_which_one_has_a_bias_are_packed_one_by_one() -> None:
    module = Attention((True, True, False))
    pack_linears(module)
    assert linears(module) == {PackedLinear}
