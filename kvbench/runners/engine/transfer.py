"""Transfers between device pool and host tier.

Contract: transfers run in the order in which they were given, so a load after a store of the same slot reads what was stored, and a slot
may be given away while its store is still under way. The source blocks of a store must not be reused before its ticket is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch

from kvbench.runners.engine.kv_store import KVStore

SCATTERED_FROM = 4
"""Runs in one copy from which the CPU moves it in one indexed call: a call a run then costs more (``benchmarks/restore.py``)."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Blocks ``first .. first + len(blocks) - 1`` of the host slot, and the device blocks they belong to, in the same order."""

    slot: int
    first: int
    blocks: list[int]


class Ticket(Protocol):
    """One transfer under way."""

    def done(self) -> bool:
        """Whether the data has arrived."""

    def wait(self) -> None:
        """Block until it has."""


class Transfer(Protocol):
    """Moves KV; the engine's only way to do so."""

    def store(self, copies: list[Copy]) -> Ticket:
        """Begin to copy device blocks to their host slots; changes the host tier only."""

    def load(self, copies: list[Copy]) -> Ticket:
        """Begin to copy host slots to their device blocks; changes those blocks only."""


class Done:
    """A transfer that was complete when it returned."""

    def done(self) -> bool:
        """Always true."""
        return True

    def wait(self) -> None:
        """Returns at once."""


class CpuTransfer:
    """Both sides in RAM: plain copies, finished on return."""

    def __init__(self, store: KVStore) -> None:
        self._device, self._host = _as_words(store.device), _as_words(store.host)

    def store(self, copies: list[Copy]) -> Ticket:
        """Copy from the device pool to the host slots."""
        for piece in _pieces(copies, self._device, self._host):
            if piece.scattered is None:
                piece.host.copy_(piece.device)
            else:
                piece.host.copy_(piece.device.index_select(2, piece.scattered))
        return Done()

    def load(self, copies: list[Copy]) -> Ticket:
        """Copy from the host slots to the device pool."""
        for piece in _pieces(copies, self._device, self._host):
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


class CudaTransfer:
    """Pinned host memory and a stream of its own, so that a store overlaps the next step.

    The copy stream first waits for what the compute stream was given so far: a store reads KV only after it was written (vllm#45704). A
    load's blocks are read by the compute stream only after it, in turn, waits for the copy.
    """

    def __init__(self, store: KVStore) -> None:
        self._device, self._host = _as_words(store.device), _as_words(store.host)
        self._stream = torch.cuda.Stream(store.device.device)  # type: ignore[no-untyped-call]

    def store(self, copies: list[Copy]) -> Ticket:
        """Begin the copies to the host behind all work given to the compute stream so far."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device.device))
        with torch.cuda.stream(self._stream):
            for piece in _pieces(copies, self._device, self._host, scattered_from=None):
                piece.host.copy_(piece.device, non_blocking=True)
            return self._ticket()

    def load(self, copies: list[Copy]) -> Ticket:
        """Begin the copies to the device, and make the compute stream wait for them."""
        compute = torch.cuda.current_stream(self._device.device)
        self._stream.wait_stream(compute)
        with torch.cuda.stream(self._stream):
            for piece in _pieces(copies, self._device, self._host, scattered_from=None):
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


@dataclass(frozen=True, slots=True)
class _Piece:
    """One copy call. ``host``: ``[layers, 2, blocks, words of a block]``; ``device``: the same, or the whole pool if ``scattered``."""

    device: torch.Tensor
    host: torch.Tensor
    scattered: torch.Tensor | None = None
    """The device blocks, where they do not follow one another."""


def _pieces(copies: list[Copy], device: torch.Tensor, host: torch.Tensor, scattered_from: int | None = SCATTERED_FROM) -> Iterator[_Piece]:
    """A view a run of consecutive blocks; a copy of ``scattered_from`` runs or more goes in one indexed call instead."""
    for copy in copies:
        slot = host[copy.slot]
        found = runs(copy.blocks)
        if scattered_from is not None and len(found) >= scattered_from:
            yield _Piece(device, slot[:, :, copy.first : copy.first + len(copy.blocks)], torch.tensor(copy.blocks))
            continue
        for start, end in found:
            block = copy.blocks[start]
            yield _Piece(device[:, :, block : block + end - start], slot[:, :, copy.first + start : copy.first + end])


def runs(blocks: list[int]) -> list[tuple[int, int]]:
    """Start and end index of each longest run of consecutive, ascending numbers."""
    breaks = [index for index, (one, next_one) in enumerate(pairwise(blocks), start=1) if next_one != one + 1]
    return list(pairwise([0, *breaks, len(blocks)])) if blocks else []


def _as_words(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with each block flattened to 64-bit words, which copy faster than small elements; bytes where they do not fit."""
    flat = tensor.flatten(-3)
    return flat.view(torch.int64 if flat.shape[-1] * tensor.itemsize % 8 == 0 else torch.uint8)
