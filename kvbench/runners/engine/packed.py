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


class PackedLinear(nn.Module):
    """A linear layer whose weight exists only packed; for inference."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None)
        self._bias = None if layer.bias is None else layer.bias.detach()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """``[..., in]`` to ``[..., out]``, as ``nn.Linear``."""
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._weight, self._bias, "none", [], "")
        return output


@torch.inference_mode()
def pack_linears(network: Any) -> None:
    """Replace the network's linear layers in place where it is on the CPU, in half precision, and packing works."""
    if network.device.type != "cpu" or network.dtype not in PACKED_TYPES or not _packing_works(network.dtype):
        return
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))


def _packing_works(dtype: torch.dtype) -> bool:
    """Whether the private operators exist here and give what the plain layer gives, up to rounding."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(48, 40, dtype=dtype)
    layer.weight.copy_(torch.randn(40, 48, generator=generator))
    inputs = torch.randn(1, 5, 48, generator=generator).to(dtype)
    try:
        packed = PackedLinear(layer)(inputs)
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return False
    return torch.allclose(packed.float(), F.linear(inputs, layer.weight, layer.bias).float(), rtol=2e-2, atol=2e-2)
