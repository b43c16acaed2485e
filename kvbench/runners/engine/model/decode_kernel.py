"""Decode attention in C++ (``decode_attention.cpp``), for ``--compile`` on the CPU: it reads each span's blocks where they lie.

Torch's attention wants K and V of a batch in one tensor, so they are gathered first, in each layer of each step. The source is built for
one model's shape, by the builder that torch's compiler uses for what it generates: the same C++ compiler, flags and cache folder, so it
needs nothing that ``--compile`` does not need anyway. That builder is private to PyTorch, so it is in this file only, and what it built is
tried against torch's attention before it is used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.resources import files

import torch

from kvbench.models.units import ceil_div
from kvbench.runners.engine.kv.kv_store import KVShape, KVStore
from kvbench.runners.engine.model.attention import Decode, Decoder, Span, sdpa_decodes

C_TYPES = {
    torch.float64: ("double", "double"),
    torch.float32: ("float", "float"),
    torch.bfloat16: ("c10::BFloat16", "float"),
    torch.float16: ("c10::Half", "float"),
}
"""What KV is, and what it is summed in."""

_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64
SIGNATURE = [_POINTER, *[_INTEGER] * 2, *[_POINTER] * 3, _INTEGER, *[_POINTER] * 2, _INTEGER, ctypes.c_double, _POINTER]


class NoKernel(Exception):
    """The kernel cannot be had; the message says why in one line."""


class KernelDecode:
    """All spans of one row each, whatever their lengths, in one call a layer."""

    def __init__(self, kernel: Callable[..., None], store: KVStore, spans: list[Span]) -> None:
        size = store.block_size
        used = max(ceil_div(span.end, size) for span in spans)
        blocks = torch.tensor([span.blocks[:used] + [0] * (used - len(span.blocks)) for span in spans])
        self._kernel = kernel
        self._pool = store.device
        self._slots = (blocks[:, :, None] * size + torch.arange(size)).flatten(1)  # BlockTable[j // B] · B + j % B
        self._lengths = torch.tensor([span.end for span in spans])
        self._rows = torch.tensor([span.row for span in spans])

    def attend(self, layer: int, query: torch.Tensor, output: torch.Tensor, scaling: float) -> None:
        """See :class:`~kvbench.runners.engine.model.attention.Decode`."""
        heads = query.flatten(0, 1)  # in a group of one, torch gives the next head's place any stride
        if heads.stride(2) != 1:
            heads = heads.contiguous()
        keys, values = self._pool[layer]
        self._kernel(
            heads.data_ptr(),
            heads.stride(1),
            heads.stride(0),
            keys.data_ptr(),
            values.data_ptr(),
            self._slots.data_ptr(),
            self._slots.shape[1],
            self._lengths.data_ptr(),
            self._rows.data_ptr(),
            len(self._rows),
            scaling,
            output.data_ptr(),
        )


def kernel_decoder(shape: KVShape, heads: int) -> Decoder:
    """The kernel for this shape and so many query heads; ``NoKernel``: it cannot be built, or gives other numbers than torch."""
    try:
        kernel = _build(shape, heads // shape.kv_heads)
    except Exception as error:  # a private builder, a compiler, a loader: whatever fails, decoding goes on without
        raise NoKernel(_reason(error)) from None

    def decoder(store: KVStore, spans: list[Span]) -> list[Decode]:
        return [KernelDecode(kernel, store, spans)]

    if not _agrees(decoder, shape, heads):
        raise NoKernel("what was built gives other numbers than torch's attention")
    return decoder


def _build(shape: KVShape, group: int) -> Callable[..., None]:
    """Compile the source for a shape, or find it compiled."""
    from torch._inductor.codecache import CppCodeCache

    scalar, real = C_TYPES[shape.dtype]
    constants = {"SCALAR": scalar, "REAL": real, "KV_HEADS": shape.kv_heads, "GROUP": group, "HEAD_DIM": shape.head_dim}
    source = files(__package__).joinpath("decode_attention.cpp").read_text(encoding="utf-8")
    library = CppCodeCache.load(source, extra_flags=tuple(f"-D{name}={value}" for name, value in constants.items()))
    kernel: Callable[..., None] = library.decode_attention
    kernel.argtypes, kernel.restype = SIGNATURE, None  # type: ignore[attr-defined]
    return kernel


@torch.inference_mode()
def _agrees(decoder: Decoder, shape: KVShape, heads: int) -> bool:
    """Whether it gives what torch's attention gives, up to rounding, for spans of one piece and of several."""
    generator = torch.Generator().manual_seed(0)
    store = KVStore(KVShape(1, shape.kv_heads, shape.head_dim, shape.dtype), 24, 16, torch.device("cpu"), 0, 1)
    store.device.copy_(torch.randn(store.device.shape, generator=generator))
    spans = [Span(0, 1, 300, list(range(23, 4, -1))), Span(1, 1, 0, [0]), Span(2, 1, 31, [1, 2])]
    rows = torch.randn(3, heads, shape.head_dim, generator=generator).to(shape.dtype)
    query = rows.transpose(0, 1).view(shape.kv_heads, -1, 3, shape.head_dim)  # as a layer gives it
    ours, theirs = (query.new_zeros(3, *query.shape[:2], shape.head_dim) for _ in range(2))
    for output, decodes in ((ours, decoder(store, spans)), (theirs, sdpa_decodes(store, spans))):
        for decode in decodes:
            decode.attend(0, query, output, shape.head_dim**-0.5)
    tolerance = 2e-2 if shape.dtype.itemsize < 4 else 1e-4
    return torch.allclose(ours.double(), theirs.double(), rtol=tolerance, atol=tolerance)


def _reason(error: Exception) -> str:
    """The compiler's first complaint, or the first line of any other error."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if "error:" in line), lines[0])
