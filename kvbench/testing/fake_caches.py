"""The fake server's prefix cache and LMCache: which prompt tokens were found where, as the simulator has it for the profile ``vllm``."""

from __future__ import annotations

from array import array

from kvbench.runners.profiles import VLLM
from kvbench.runners.simulator.prefixes import Prefixes
from kvbench.runners.simulator.simulator import BlockSimulator, CacheSizes, Footprint, TierTokens
from kvbench.testing.fake_script import Script

CHUNK_TOKENS = 256
CHUNK_BYTES = 1 << 20


class FakeCaches:
    """A device pool, and perhaps a host tier; exact for requests that come one at a time. Without a pool nothing is ever found."""

    def __init__(self, script: Script) -> None:
        """Cold; ``UsageError`` where the sizes do not go together."""
        self.tier, self._prefix_caching = script.host_tokens is not None, script.prefix_caching
        self.host_capacity = (script.host_tokens or 0) // CHUNK_TOKENS
        self.stored: set[tuple[int, str, int]] = set()
        self._pool_epoch = self._tier_epoch = 0
        self._chunks, self._blocks = Prefixes(CHUNK_TOKENS), Prefixes(script.block_size)
        self._simulator: BlockSimulator | None = None
        if script.pool_tokens is not None:
            assert VLLM.device is not None
            assert VLLM.host is not None
            host_tokens = script.host_tokens if script.tier_answers else None
            sizes = CacheSizes(script.pool_tokens, script.block_size, host_tokens, CHUNK_TOKENS)
            self._simulator = BlockSimulator(VLLM.device, VLLM.host, sizes)

    def read(self, prompt: list[int], output_tokens: int, salt: str = "") -> TierTokens:
        """Run one request; changes what the tiers hold. What another salt left there is not found, as in vLLM.

        Raises:
            UsageError: the request does not fit the pool.
        """
        chunks = [(self._tier_epoch, salt, number) for number in self._chunks.of(prompt)] if self.tier else []
        self.stored.update(chunks)
        if self._simulator is None or not self._prefix_caching:
            return TierTokens(0, 0, len(prompt))
        tokens = array("q", prompt)
        tokens.extend(range(output_tokens - 1))  # what it answers; the last token has no KV
        blocks = [(self._pool_epoch, salt, number) for number in self._blocks.of(tokens)]
        return self._simulator.run(Footprint(len(prompt), len(tokens), blocks, chunks))

    def clear_pool(self) -> None:
        """Nothing in the pool is found any more. What is there is older than all that comes, so it is reused first, as if it were free."""
        self._pool_epoch += 1

    def clear_tier(self) -> None:
        """Nothing in the tier is found any more."""
        self._tier_epoch += 1
        self.stored.clear()

    def status(self, storing: int) -> dict[str, object]:
        """What LMCache 0.5.6 says under ``/status`` while ``storing`` chunks are being written: the fields that tell of stores."""
        chunks = max(0, min(len(self.stored), self.host_capacity) - storing)
        manager = {
            "total_object_count": chunks,
            "write_locked_count": storing,
            "read_locked_count": 0,
            "staging_object_count": 0,
            "memory_used_bytes": chunks * CHUNK_BYTES,
            "memory_configured_bytes": self.host_capacity * CHUNK_BYTES,
        }
        return {
            "is_healthy": True,
            "chunk_size": CHUNK_TOKENS,
            "storage_manager": {
                "l1_managers": {"_default": manager},
                "store_controllers": {"_default": {"pending_keys_count": 0, "in_flight_task_count": 0}},
                "prefetch_controller": {"submission_queue_size": 0, "pending_queue_size": 0, "in_flight_request_count": 0},
            },
            "registered_gpu_ids": [],
            "registered_non_cuda_instance_ids": [1] if self.tier else [],
        }
