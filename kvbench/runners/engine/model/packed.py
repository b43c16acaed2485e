"""Half-precision linear layers with their weights packed for the CPU's matrix kernels.

PyTorch keeps a weight as it was loaded, and its kernels rearrange it at every call; with a few rows (decoding) that costs more than the
product. torch's compiler packs constant weights once; here the same is done without it. The operators are private to PyTorch, so they are
in this file only, tried at load against the plain layer, which stays if they are missing or differ.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

PACKED_TYPES = (torch.bfloat16, torch.float16)

SIBLINGS = ("q_proj", "k_proj", "v_proj")
"""Layers of one module that are given the same tensor, one after another, in every architecture the engine runs. (``gate_proj`` and
``up_proj`` are too, but parts of a wider tensor slow down what follows: with them a prefill takes longer and a decode step no less.)"""


class PackedLinear(nn.Module):
    """A linear layer whose weight exists only packed; for inference."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        self._bias = None if bias is None else bias.detach()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """``[..., in]`` to ``[..., out]``, as ``nn.Linear``."""
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._weight, self._bias, "none", [], "")
        return output


class _Product:
    """One product instead of several of the same input: with a few rows, a call costs as much as a small weight (vLLM does the same)."""

    def __init__(self, layers: list[nn.Linear]) -> None:
        bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
        self._linear = PackedLinear(torch.cat([layer.weight for layer in layers]), bias)
        self._sizes = [layer.out_features for layer in layers]
        self._inputs: torch.Tensor | None = None
        self._outputs: tuple[torch.Tensor, ...] = ()

    def part(self, number: int, inputs: torch.Tensor) -> torch.Tensor:
        """What layer ``number`` gives; kept from its siblings' call if that had the same tensor, until the last of them has its own."""
        if inputs is not self._inputs:
            self._inputs, self._outputs = inputs, self._linear(inputs).split(self._sizes, -1)
        output = self._outputs[number]
        if number == len(self._sizes) - 1:
            self._inputs, self._outputs = None, ()
        return output


class PackedSibling(nn.Module):
    """One of the layers that share a product."""

    def __init__(self, product: _Product, number: int) -> None:
        super().__init__()
        self._product, self._number = product, number

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """``[..., in]`` to ``[..., out]``, as ``nn.Linear``; a view of what the siblings get too."""
        return self._product.part(self._number, inputs)


@torch.inference_mode()
def pack_linears(network: Any) -> None:
    """Replace the network's linear layers in place where it is on the CPU, in half precision, and packing works."""
    if network.device.type != "cpu" or network.dtype not in PACKED_TYPES or not _packing_works(network.dtype):
        return
    for module in list(network.modules()):
        _share_product(module)
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child.weight, child.bias))


def _share_product(module: nn.Module) -> None:
    """Give a module's :data:`SIBLINGS` one product, if it has them all and they are alike."""
    layers = [layer for name in SIBLINGS if type(layer := getattr(module, name, None)) is nn.Linear]
    if len(layers) < len(SIBLINGS) or len({(layer.in_features, layer.bias is None) for layer in layers}) > 1:
        return
    product = _Product(layers)
    for number, name in enumerate(SIBLINGS):
        setattr(module, name, PackedSibling(product, number))


def _packing_works(dtype: torch.dtype) -> bool:
    """Whether the private operators exist here and give what the plain layer gives, up to rounding."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(48, 40, dtype=dtype)
    layer.weight.copy_(torch.randn(40, 48, generator=generator))
    inputs = torch.randn(1, 5, 48, generator=generator).to(dtype)
    try:
        packed = PackedLinear(layer.weight, layer.bias)(inputs)
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return False
    return torch.allclose(packed.float(), F.linear(inputs, layer.weight, layer.bias).float(), rtol=2e-2, atol=2e-2)
