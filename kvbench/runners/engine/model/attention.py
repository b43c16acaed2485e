"""Attention over paged KV, called by every layer of a transformers model through its attention interface.

A step is a flat batch: the rows of all its sequences behind one another, as ``[1, heads, rows, head_dim]``. Each sequence is a
:class:`Span`: its rows, the tokens it has in the pool already, and its block table. New K and V are written to the pool first, at slot
``BlockTable[j // B] · B + j % B`` for token ``j`` (the formula of the article on paging), then each span attends:

- **prefill** (several rows): the rows among themselves, causally, and to the tokens before them, unmasked; the two parts are merged by
  their log-sum-exp. One masked call would compute the half that the mask throws away.
- **decode** (one row): spans of like length in one gather and one call, the query heads of a KV head as its rows, so K and V are read
  once and never repeated; a span whose blocks are consecutive is read in place. Padding is masked, and zeroed first: under a mask alone
  a NaN left in a slot that no token fills would still be one. (With ``--compile`` on the CPU a kernel of our own reads them in place:
  :mod:`kvbench.runners.engine.model.decode_kernel`.)

K and V are never repeated for grouped query heads: KV heads are the batch and the group's heads share one stride-0 view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

from kvbench.models.units import ceil_div
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.transfer import runs

NAME = "kvbench_paged"
LIKE_LENGTH = 1.25
"""Spans share a gather up to this ratio of longest to shortest: padding costs its share, a call of its own costs a dispatch."""

LONG_RUN = 64
"""Runs of consecutive slots that have this many on average are written run by run; shorter ones in one scatter."""


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence's part of a step: rows ``row .. row + count - 1`` are its tokens ``start .. start + count - 1``."""

    row: int
    count: int
    start: int
    blocks: list[int]

    @property
    def end(self) -> int:
        """Tokens that the last row attends to, itself included."""
        return self.start + self.count


class _Blocks:
    """K and V of spans that have equally many blocks: one after another in place, others through a gather, ``dead`` tokens of it zeroed.

    Everything that does not depend on the layer is made once: views cost as much as a small kernel.
    """

    def __init__(self, store: KVStore, blocks: list[int], tokens: int, spans: int = 1, dead: list[int] | None = None) -> None:
        self._store = store
        self._spans, self._tokens = spans, tokens
        self._place = slice(blocks[0], blocks[0] + len(blocks)) if len(runs(blocks)) == 1 and not dead else None
        if self._place is None:
            index = torch.tensor(blocks, device=store.device.device)
            self._halves = torch.cat([index, index + store.num_blocks])
            self._dead = torch.tensor(dead, device=store.device.device) if dead else None
            self._room = store.gathering_room(len(blocks))
            self._room_by_token = self._room.view(2, -1, *self._room.shape[2:])
            self._gathered = self._by_span(self._room)

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of a layer as ``[spans, kv_heads, tokens, head_dim]``; what was gathered is overwritten by the next gather."""
        if self._place is not None:
            return self._by_span(self._store.device[layer, :, self._place])
        torch.index_select(self._store.halves[layer], 0, self._halves, out=self._room)
        if self._dead is not None:
            self._room_by_token.index_fill_(1, self._dead, 0)
        return self._gathered

    def _by_span(self, both: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = both.view(2, self._spans, -1, *both.shape[-2:])[:, :, : self._tokens].transpose(2, 3)
        return keys, values


class Decode(Protocol):
    """Spans of one row each that attend together; made once a step."""

    def attend(self, layer: int, query: torch.Tensor, output: torch.Tensor, scaling: float) -> None:
        """Fill the spans' rows of ``output`` ``[rows, kv_heads, group, head_dim]``; ``query`` is ``[kv_heads, group, rows, head_dim]``."""


Decoder = Callable[[KVStore, list[Span]], "list[Decode]"]
"""How the spans of one row each attend; there is at least one."""


class SdpaDecode:
    """Spans of like length, through torch's attention; the blocks of each are padded to those of the longest with its last."""

    def __init__(self, store: KVStore, spans: list[Span]) -> None:
        device, size = store.device.device, store.block_size
        spans = sorted(spans, key=lambda span: span.row)
        tokens = max(span.end for span in spans)
        used = ceil_div(tokens, size)
        blocks: list[int] = []
        dead: list[int] = []
        for number, span in enumerate(spans):
            own = span.blocks[: ceil_div(span.end, size)]
            blocks += own + own[-1:] * (used - len(own))
            dead += range(number * used * size + span.end, number * used * size + tokens)
        self._blocks = _Blocks(store, blocks, tokens, len(spans), dead)
        self._mask = None
        """``[spans, 1, 1, tokens]``, 0 or −inf; ``None`` if every span has exactly the padded length."""
        if any(span.end != tokens for span in spans):
            lengths = torch.tensor([span.end for span in spans], device=device)
            beyond = torch.arange(tokens, device=device)[None, :] >= lengths[:, None]
            mask = torch.zeros(beyond.shape, dtype=store.shape.dtype, device=device).masked_fill_(beyond, float("-inf"))
            self._mask = mask[:, None, None]
        first, last = spans[0].row, spans[-1].row
        adjoin = last - first + 1 == len(spans)
        self._rows = slice(first, last + 1) if adjoin else torch.tensor([span.row for span in spans], device=device)

    def attend(self, layer: int, query: torch.Tensor, output: torch.Tensor, scaling: float) -> None:
        """See :class:`Decode`."""
        keys, values = self._blocks.read(layer)
        own = query[:, :, self._rows].permute(2, 0, 1, 3)
        output[self._rows] = F.scaled_dot_product_attention(own, keys, values, attn_mask=self._mask, scale=scaling)


def sdpa_decodes(store: KVStore, spans: list[Span]) -> list[Decode]:
    """Torch's attention: a call for each group of like lengths."""
    return [SdpaDecode(store, group) for group in like_lengths(spans)]


class PagedStep:
    """The attention of one step: made once, called by each layer."""

    def __init__(self, store: KVStore, spans: list[Span], decoder: Decoder = sdpa_decodes) -> None:
        self._store = store
        device = store.device.device
        self._slot_list = [slot for span in spans for slot in slots_of(span, store.block_size)]
        self._slots = torch.tensor(self._slot_list, device=device)
        self._slot_runs = runs(self._slot_list)
        self._prefills = [(span, self._before(span)) for span in spans if span.count > 1]
        single = [span for span in spans if span.count == 1]
        self._decodes = decoder(store, single) if single else []

    def __call__(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
        """Write the rows' K and V, then attend.

        ``query``: ``[1, heads, rows, head_dim]``; ``key`` and ``value``: ``[1, kv_heads, rows, head_dim]``. ``scaling``: factor on the
        scores before the softmax.

        Returns: ``[1, rows, heads, head_dim]``.
        """
        self._write(layer, key[0], value[0])
        kv_heads = key.shape[1]
        grouped = query[0].view(kv_heads, -1, *query.shape[2:])  # [kv_heads, group, rows, head_dim]
        output = torch.empty(query.shape[2], *grouped.shape[:2], query.shape[3], dtype=query.dtype, device=query.device)
        for span, before in self._prefills:
            rows = slice(span.row, span.row + span.count)
            own = grouped[:, :, rows], key[0, :, rows], value[0, :, rows]
            if before is None:
                attended = _causal(*own, scaling)
            else:
                keys, values = before.read(layer)
                attended = _after_prefix(*own, keys[0], values[0], scaling)
            output[rows] = attended.permute(2, 0, 1, 3)
        for decode in self._decodes:
            decode.attend(layer, grouped, output, scaling)
        return output.flatten(1, 2).unsqueeze(0)

    def _write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Put the rows' K and V ``[kv_heads, rows, head_dim]`` into their slots."""
        for pool, rows in zip(self._store.tokens(layer), (key.transpose(0, 1), value.transpose(0, 1)), strict=True):
            if len(self._slot_list) < LONG_RUN * len(self._slot_runs):
                pool.index_copy_(0, self._slots, rows[: len(self._slot_list)])  # a compiled step's rows may be padded
                continue
            for start, end in self._slot_runs:
                slot = self._slot_list[start]
                pool[slot : slot + end - start] = rows[start:end]

    def _before(self, span: Span) -> _Blocks | None:
        """The blocks of the tokens before a span, if any are."""
        blocks = span.blocks[: ceil_div(span.start, self._store.block_size)]
        return _Blocks(self._store, blocks, span.start) if blocks else None


def slots_of(span: Span, block_size: int) -> list[int]:
    """The pool slot of each of the span's tokens: ``BlockTable[j // B] · B + j % B``."""
    return [span.blocks[j // block_size] * block_size + j % block_size for j in range(span.start, span.end)]


def like_lengths(spans: Iterable[Span]) -> list[list[Span]]:
    """Spans grouped so that none is longer than :data:`LIKE_LENGTH` times the shortest of its group."""
    groups: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: span.end):
        if groups and span.end <= LIKE_LENGTH * groups[-1][0].end:
            groups[-1].append(span)
        else:
            groups.append([span])
    return groups


def _causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
    """Causal attention of the rows among themselves, ``[kv_heads, group, rows, head_dim]``."""
    return _grouped(query, key, value, is_causal=True, scale=scaling)


def _after_prefix(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, prefix_key: torch.Tensor, prefix_value: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Attention of rows ``[kv_heads, group, rows, head_dim]`` that follow a prefix: each sees all of that and the rows up to itself."""
    if query.is_cuda or not has_log_sum_exp():
        return _masked(query, torch.cat([prefix_key, key], 1), torch.cat([prefix_value, value], 1), scaling)
    before, before_lse = _flash(query, _shared(prefix_key, query), _shared(prefix_value, query), False, scaling)
    own, own_lse = _flash(query, _shared(key, query), _shared(value, query), True, scaling)
    weight = torch.sigmoid(before_lse - own_lse).unsqueeze(-1)  # e^before / (e^before + e^own)
    if query.dtype.itemsize < 4:  # merge half-precision parts in fp32
        return torch.lerp(own.float(), before.float(), weight).to(query.dtype)
    return torch.lerp(own, before, weight)


def _masked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
    """The same in one call, the causal mask aligned to the lower right (on CUDA its kernels skip the masked half)."""
    rows, tokens = query.shape[2], key.shape[1]
    if query.is_cuda:
        return _grouped(query, key, value, attn_mask=causal_lower_right(rows, tokens), scale=scaling)
    return _grouped(query, key, value, attn_mask=torch.ones(rows, tokens, dtype=torch.bool).tril(tokens - rows), scale=scaling)


def _grouped(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> torch.Tensor:
    """Attention with the KV heads as the batch; K and V are ``[kv_heads, tokens, head_dim]``."""
    if query.is_cuda:  # its kernels take one KV head for a group, where a stride-0 view may rule them out
        return F.scaled_dot_product_attention(query, key.unsqueeze(1), value.unsqueeze(1), enable_gqa=True, **options)
    return F.scaled_dot_product_attention(query, _shared(key, query), _shared(value, query), **options)


def _shared(part: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """K or V ``[kv_heads, tokens, head_dim]`` as every query head of the group sees it: a stride-0 view, not a copy."""
    return part.unsqueeze(1).expand(-1, query.shape[1], -1, -1)


def _flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, scaling: float) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's CPU kernel with its log-sum-exp, which the public function does not give; private, so :func:`has_log_sum_exp` tests it."""
    output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal, scale=scaling)
    return output, lse


@cache
def has_log_sum_exp() -> bool:
    """Whether the private kernel exists and, merged, gives what one masked call gives; if not, the masked call is used."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(shape, generator=generator) for shape in ((2, 3, 5, 8), (2, 12, 8), (2, 12, 8)))
    try:
        before, before_lse = _flash(query, _shared(key[:, :7], query), _shared(value[:, :7], query), False, 0.5)
        own, own_lse = _flash(query, _shared(key[:, 7:], query), _shared(value[:, 7:], query), True, 0.5)
    except (AttributeError, RuntimeError, TypeError):
        return False
    merged = torch.lerp(own, before, torch.sigmoid(before_lse - own_lse).unsqueeze(-1))
    return torch.allclose(merged, _masked(query, key, value, 0.5), atol=1e-5)
