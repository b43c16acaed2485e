"""The KV itself: a tensor on the device, one for the host tier, one for what was swapped out, and the views they are copied through."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvbench.runners.engine.kv import huge_pages


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one model keeps for a token: K and V of ``kv_heads`` heads of ``head_dim`` numbers, in ``layers`` layers."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """2 · layers · KV heads · head dimension · bytes an element."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class KVStore:
    """The device pool ``[layers, 2, blocks, B, kv_heads, head_dim]`` (0: K, 1: V) and the host tier's slots.

    A host slot holds a chunk as ``[layers, 2, B-blocks of the chunk, B, kv_heads, head_dim]``; the swap space is laid out as the pool is.
    With the layer outermost, a run of consecutive blocks is one view in every layer, and a chunk's copy is one strided copy a run.
    """

    def __init__(
        self,
        shape: KVShape,
        num_blocks: int,
        block_size: int,
        device: torch.device,
        host_chunks: int,
        chunk_blocks: int,
        swap_blocks: int = 0,
    ) -> None:
        """Allocate all and touch every page, so that no measured request pays for the operating system's first touch.

        On CUDA the host side is pinned; where both sides are RAM, all is in huge pages.

        Raises ``MemoryError``: there is not enough.
        """
        self.shape, self.num_blocks, self.block_size = shape, num_blocks, block_size
        self.block_bytes = block_size * shape.bytes_per_token
        row = (block_size, shape.kv_heads, shape.head_dim)
        pool = (shape.layers, 2, num_blocks, *row)
        on_cuda = device.type == "cuda"
        host_zeros = _pinned_zeros if on_cuda else huge_pages.zeros
        self.device = torch.zeros(pool, dtype=shape.dtype, device=device) if on_cuda else huge_pages.zeros(pool, shape.dtype)
        self.host = host_zeros((host_chunks, shape.layers, 2, chunk_blocks, *row), shape.dtype)
        self.swap = host_zeros((shape.layers, 2, swap_blocks, *row), shape.dtype)
        self._tokens = [tuple(layer.flatten(1, 2)) for layer in self.device]
        self.halves = [layer.flatten(0, 1) for layer in self.device]
        """Of each layer K of every block, then V. To be gathered along this first dimension: along others torch uses one thread only."""
        self._scratch = self._new_scratch(0)

    def copy_block(self, source: int, target: int) -> None:
        """Make the target a copy of the source, on the device, behind all that was given to it so far."""
        self.device[:, :, target] = self.device[:, :, source]

    def tokens(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of a layer as ``[slots, kv_heads, head_dim]``: token ``j`` is in slot ``BlockTable[j // B] · B + j % B``."""
        keys, values = self._tokens[layer]
        return keys, values

    def gathering_room(self, count: int) -> torch.Tensor:
        """Room for K and V of ``count`` blocks, ``[2 · count, B, kv_heads, head_dim]``; the next caller gets the same memory.

        Fresh memory for each layer would cost more in page faults than the copy.
        """
        if len(self._scratch) < 2 * count:
            self._scratch = self._new_scratch(count)
        return self._scratch[: 2 * count]

    def _new_scratch(self, count: int) -> torch.Tensor:
        return self.device.new_empty(2 * count, *self.device.shape[3:])


def _pinned_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, pin_memory=True).zero_()
