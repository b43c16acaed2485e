"""The prefix cache: what of a sequence is found on the device, what in the host tier behind it, and what becomes findable.

A hit is the leading run of blocks found on the device, then the leading run of chunks found in the host tier from where the device's
ends; that may be inside a chunk. At least the last token's block is computed, for its logits: a hit covers at most ⌊(tokens − 1) / B⌋
blocks (the same rule as vLLM's).
"""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.models.units import ceil_div
from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.kv.host_tier import HostTier
from kvbench.runners.engine.kv.transfer import Copy
from kvbench.runners.engine.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Hit:
    """Where the head of a sequence was found: device blocks, then host slots by chunk number; ``tokens`` in both together.

    Of a sequence that was swapped out, the swap space takes the place of the host slots.
    """

    blocks: list[int]
    slots: dict[int, int]
    device_tokens: int
    tokens: int


class PrefixCache:
    """Looks sequences up in the pool and in the host tier (``None``: there is no such tier), and makes their KV findable."""

    def __init__(self, pool: BlockPool, block_size: int, host: HostTier | None, reuse: bool = True) -> None:
        """Without ``reuse``, no block of the device pool becomes findable; the host tier is as it is."""
        self.pool = pool
        self.block_size = block_size
        self.host = host
        self.reuse = reuse

    def look_up(self, sequence: Sequence) -> Hit:
        """The longest usable hit; changes nothing."""
        sequence.extend_keys()
        limit = (len(sequence.tokens) - 1) // self.block_size
        blocks = self.pool.find_run(sequence.block_keys.keys[:limit])
        device_tokens = len(blocks) * self.block_size
        if sequence.swap_slots:
            return Hit(blocks, {}, device_tokens, max(device_tokens, sequence.swapped_tokens))
        slots, tokens = self._look_up_host(sequence, device_tokens, limit * self.block_size)
        return Hit(blocks, slots, device_tokens, tokens)

    def _look_up_host(self, sequence: Sequence, start: int, limit: int) -> tuple[dict[int, int], int]:
        """Slots by chunk number from token ``start`` on, and the token where the hit ends, at most ``limit``."""
        slots: dict[int, int] = {}
        if self.host is None or start >= limit:
            return slots, start
        chunk = self.host.chunk_tokens
        end = start
        for number in range(start // chunk, min(len(sequence.chunk_keys.keys), ceil_div(limit, chunk))):
            slot = self.host.find(sequence.chunk_keys.keys[number])
            if slot is None:
                break
            slots[number] = slot
            end = min((number + 1) * chunk, limit)
        return slots, end

    def restore(self, sequence: Sequence, hit: Hit) -> list[Copy]:
        """The copies that bring the hit's host part into the sequence's blocks; makes its chunks the most recently used."""
        copies = []
        for number, slot in hit.slots.items():
            assert self.host is not None
            self.host.touch(sequence.chunk_keys.keys[number])
            chunk = self.host.chunk_tokens
            copies.append(self._copy(sequence, slot, number, max(number * chunk, hit.device_tokens), min((number + 1) * chunk, hit.tokens)))
        return copies

    def publish(self, sequence: Sequence) -> None:
        """Make the blocks findable that the sequence has filled."""
        if not self.reuse:
            return
        sequence.extend_keys()
        full = sequence.computed // self.block_size
        for index in range(sequence.cached_blocks, full):
            self.pool.publish(sequence.block_table[index], sequence.block_keys.keys[index])
        sequence.cached_blocks = max(sequence.cached_blocks, full)

    def store(self, sequence: Sequence, start: int) -> list[Copy]:
        """The copies that write through the chunks completed by the tokens computed from ``start`` on; gives each a slot.

        A chunk that the host has already is touched and not written again.
        """
        if self.host is None:
            return []
        sequence.extend_keys()
        chunk = self.host.chunk_tokens
        copies = []
        for number in range(start // chunk, sequence.computed // chunk):
            slot = self.host.put(sequence.chunk_keys.keys[number])
            if slot is not None:
                copies.append(self._copy(sequence, slot, number, number * chunk, (number + 1) * chunk))
        return copies

    def _copy(self, sequence: Sequence, slot: int, number: int, start: int, end: int) -> Copy:
        """The copy of tokens ``start .. end - 1``, which lie in chunk ``number``; both are multiples of the block size."""
        assert self.host is not None
        first = number * self.host.chunk_tokens // self.block_size
        blocks = sequence.block_table[start // self.block_size : end // self.block_size]
        return Copy(slot, start // self.block_size - first, blocks)
