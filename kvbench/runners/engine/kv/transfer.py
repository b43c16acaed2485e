"""Transfers between the device pool and host memory: the host tier, and the swap space beside it.

Contract: transfers run in the order in which they were given, so a load after a store of the same slot reads what was stored, and a slot
(or a place of the swap space) may be given away while a copy from or to it is still under way. The source blocks of a store must not be
reused before its ticket is done, nor the target blocks of a load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Protocol

import torch

from kvbench.runners.engine.kv.kv_store import KVStore

SCATTERED_FROM = 4
"""Runs in one copy from which the CPU moves it in indexed calls, if they are short too: a call a run then costs more
(``benchmarks/restore.py``, ``benchmarks/swap.py``)."""
SHORT_RUN = 8
"""Blocks below which a copy's mean run is short."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Blocks ``first .. first + len(blocks) - 1`` of the host slot, and the device blocks they belong to, in the same order."""

    slot: int
    first: int
    blocks: list[int]


@dataclass(frozen=True, slots=True)
class SwapCopy:
    """Places of the swap space, and the device blocks they belong to, in the same order."""

    places: list[int]
    blocks: list[int]


HostCopies = Sequence[Copy | SwapCopy]
"""Copies of one transfer, whose direction the method says."""


class Ticket(Protocol):
    """One transfer under way."""

    def done(self) -> bool:
        """Whether the data has arrived."""

    def wait(self) -> None:
        """Block until it has."""


class Transfer(Protocol):
    """Moves KV; the engine's only way to do so."""

    def store(self, copies: HostCopies) -> Ticket:
        """Begin to copy device blocks to their host slots or places; changes host memory only."""

    def load(self, copies: HostCopies) -> Ticket:
        """Begin to copy host slots or places to their device blocks; changes those blocks only."""


class Done:
    """A transfer that was complete when it returned."""

    def done(self) -> bool:
        """Always true."""
        return True

    def wait(self) -> None:
        """Returns at once."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One copy call. ``host``: ``[layers, 2, blocks, words of a block]``; ``device``: the same, or the whole pool if ``scattered``."""

    device: torch.Tensor
    host: torch.Tensor
    scattered: torch.Tensor | None = None
    """The device blocks, where they do not follow one another."""


class _MemoryCopies:
    """The device pool, the host tier and the swap space as 64-bit words, which copy faster than small elements."""

    def __init__(self, store: KVStore) -> None:
        self._device, self._host, self._swap = _as_words(store.device), _as_words(store.host), _as_words(store.swap)

    def _pieces(self, copies: HostCopies, scattered_from: float = SCATTERED_FROM) -> Iterator[_Piece]:
        """A view a run of consecutive blocks; a copy of ``scattered_from`` short runs or more goes in indexed calls instead."""
        for blocks, there in self._parts(copies):
            found = runs(blocks)
            if len(found) >= scattered_from and len(blocks) < SHORT_RUN * len(found):
                yield _Piece(self._device, there, torch.tensor(blocks))
                continue
            for start, end in found:
                block = blocks[start]
                yield _Piece(self._device[:, :, block : block + end - start], there[:, :, start:end])

    def _parts(self, copies: HostCopies) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Device blocks, and the consecutive room in host memory for all of them."""
        for copy in copies:
            if isinstance(copy, Copy):
                yield copy.blocks, self._host[copy.slot][:, :, copy.first : copy.first + len(copy.blocks)]
                continue
            for start, end in runs(copy.places):
                place = copy.places[start]
                yield copy.blocks[start:end], self._swap[:, :, place : place + end - start]


class CpuTransfer(_MemoryCopies):
    """Both sides in RAM: plain copies, finished on return."""

    def store(self, copies: HostCopies) -> Ticket:
        """Copy from the device pool to host memory."""
        for piece in self._pieces(copies):
            if piece.scattered is None:
                piece.host.copy_(piece.device)
            else:
                for host, device in zip(piece.host.flatten(0, 1), piece.device.flatten(0, 1), strict=True):
                    torch.index_select(device, 0, piece.scattered, out=host)  # a layer at a time: no copy in between
        return Done()

    def load(self, copies: HostCopies) -> Ticket:
        """Copy from host memory to the device pool."""
        for piece in self._pieces(copies):
            if piece.scattered is None:
                piece.device.copy_(piece.host)
            else:
                piece.device.index_copy_(2, piece.scattered, piece.host)
        return Done()


class CudaTicket:
    """Done when the event recorded behind the copies has happened."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def done(self) -> bool:
        """Whether the copy stream has passed the event."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Block the host thread until it has."""
        self._event.synchronize()


class CudaTransfer(_MemoryCopies):
    """Pinned host memory and a stream of its own, so that a store overlaps the next step.

    The copy stream first waits for what the compute stream was given so far: a store reads KV only after it was written (vllm#45704). A
    load's blocks are read by the compute stream only after it, in turn, waits for the copy.
    """

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self._stream = torch.cuda.Stream(store.device.device)  # type: ignore[no-untyped-call]

    def store(self, copies: HostCopies) -> Ticket:
        """Begin the copies to the host behind all work given to the compute stream so far."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device.device))
        with torch.cuda.stream(self._stream):
            for piece in self._pieces(copies, inf):
                piece.host.copy_(piece.device, non_blocking=True)
            return self._ticket()

    def load(self, copies: HostCopies) -> Ticket:
        """Begin the copies to the device, and make the compute stream wait for them."""
        compute = torch.cuda.current_stream(self._device.device)
        self._stream.wait_stream(compute)
        with torch.cuda.stream(self._stream):
            for piece in self._pieces(copies, inf):
                piece.device.copy_(piece.host, non_blocking=True)
            ticket = self._ticket()
        compute.wait_stream(self._stream)
        return ticket

    def _ticket(self) -> CudaTicket:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return CudaTicket(event)


def make_transfer(store: KVStore) -> Transfer:
    """The transfer for the device that the pool is on."""
    return CudaTransfer(store) if store.device.is_cuda else CpuTransfer(store)


def runs(blocks: list[int]) -> list[tuple[int, int]]:
    """Start and end index of each longest run of consecutive, ascending numbers."""
    breaks = [index for index, (one, next_one) in enumerate(pairwise(blocks), start=1) if next_one != one + 1]
    return list(pairwise([0, *breaks, len(blocks)])) if blocks else []


def _as_words(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with each block flattened to 64-bit words, which copy faster than small elements; bytes where they do not fit."""
    flat = tensor.flatten(-3)
    return flat.view(torch.int64 if flat.shape[-1] * tensor.itemsize % 8 == 0 else torch.uint8)
