"""What engines are made from: the model, loaded once, and the device it is on."""

from __future__ import annotations

import gc
import os
from typing import Any

import psutil
import torch

from kvbench.config.engine import EngineOptions
from kvbench.errors import OutOfMemory, RunFailed
from kvbench.models.shapes import WEIGHT_SEED
from kvbench.models.units import ceil_div
from kvbench.runners.base import ArmSetup, Clock, DeviceCapacity
from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.engine_config import EngineConfig
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.link_throttle import ThrottledTransfer
from kvbench.runners.engine.kv.transfer import Transfer, make_transfer
from kvbench.runners.engine.model.floors import measure_floors
from kvbench.runners.engine.model.model import Model, count_parameters, load_model
from kvbench.runners.engine.runner import EngineRunner, memory_errors
from kvbench.runners.engine.scheduling.allocation import ALLOCATIONS
from kvbench.runners.engine.scheduling.preemption import VICTIMS
from kvbench.runners.engine.scheduling.refusals import check_request
from kvbench.workloads.draws import Draws

GIB = 2**30


class EngineBackend:
    """A loaded model from which each arm gets an engine of its own, cold."""

    nonce: str | None = None

    def __init__(self, config: EngineOptions) -> None:
        """Load the model.

        Raises ``UsageError``: the model is unknown, unreadable or refused; ``RunFailed``: CUDA was asked for and is not there, or the
        weights exceed the memory.
        """
        self._config = config
        self.chunk_tokens = config.tier_chunk_tokens
        block_size = config.pool_block_size
        self.capacity = DeviceCapacity(config.pool_tokens // block_size * block_size, block_size)
        self._device = _find_device(config.device)
        self._dtype = _find_dtype(config.dtype, self._device)
        weights = count_parameters(config.model) * self._dtype.itemsize
        _require_memory(self._device, {"weights": weights}, config.smaller)
        with memory_errors():
            self._model: Model = load_model(config.model, self._device, self._dtype, config.compile)
        self.vocab, self.tokenizer, self.bytes_per_token = self._model.vocab, self._model.tokenizer, self._model.shape.bytes_per_token

    def profile(self, arm: str) -> str | None:
        """The engine's own, on every arm."""
        return "engine"

    def host_room(self, tokens: int) -> int:
        """The tier evicts only what has no room."""
        return tokens

    def describe(self) -> dict[str, Any]:
        """``model`` and ``device`` as the manifest shows them, ``weights_seed``, and ``floors``, measured now, with ``--context``."""
        config, shape = self._config, self._model.shape
        model = {
            "name": self._model.name,
            "architecture": type(self._model.network).__name__,
            "parameters": self._model.parameters,
            "layers": shape.layers,
            "kv_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "dtype": str(self._dtype).removeprefix("torch."),
            "bytes_per_token": self.bytes_per_token,
            "vocab": self.vocab,
        }
        on_gpu = self._device.type == "cuda"
        device = {
            "device": self._device.type,
            "threads": torch.get_num_threads(),
            "decode_attention": self._model.decode_attention,
            "omp_wait": os.environ.get("OMP_WAIT_POLICY") or os.environ.get("GOMP_SPINCOUNT"),
            "gpu": torch.cuda.get_device_name(self._device) if on_gpu else None,
            "driver": f"CUDA {torch.version.cuda}" if on_gpu else None,
            "link": None if config.link_gbps is None else f"simulated at {config.link_gbps:g} GB/s",
        }
        with memory_errors():
            floors = None if config.history is None else measure_floors(self._model, config.history, config.max_batch_tokens)
        return {"model": model, "device": device, "weights_seed": WEIGHT_SEED, "floors": floors}

    def check(self, name: str, prompt_tokens: int, output_tokens: int) -> None:
        """Refuse a request that could never run; ``UsageError``: it is longer than the pool or the model allows, with the sizes."""
        check_request(name, prompt_tokens, output_tokens, self._model, self._engine_config(ArmSetup("none")), self._config.shorter)

    def warm_up(self, prompt_tokens: int) -> None:
        """Run a request, and a batch, on an engine that is thrown away: no measured one pays for first use of kernels and memory.

        The tokens are of a stream of their own, and the cache goes with the engine: nothing of the workload is warm afterwards.
        """
        budget = self._config.max_batch_tokens
        output = min(4, self._model.max_tokens - 1)
        longest = min(budget + 64, self._model.max_tokens - output)
        prompt = Draws(self._config.seed, "warm-up").integers(min(prompt_tokens, longest), 0, self.vocab)
        block_size = self.capacity.block_size
        blocks = ceil_div(len(prompt) + output, block_size)
        with memory_errors():
            engine = Engine(self._model, EngineConfig(blocks, block_size, budget, None, self.chunk_tokens))
            for batch in ([prompt], [prompt[:1]] * (self._config.in_flight - 1)):  # a compiled model has code of its own for a batch
                for number, tokens in enumerate(batch):
                    engine.submit(f"warm-up-{number}", tokens, output)
                while engine.is_busy:
                    engine.step()
        del engine
        gc.collect()
        gc.freeze()  # what torch and the model left is not looked at again: a full collection takes 0.4 s, and may fall into a request

    def check_memory(self, arm: ArmSetup) -> None:
        """Refuse an arm whose pool, host tier and swap space exceed the memory there is; raises ``OutOfMemory`` with the sizes."""
        device = {"device pool": self._engine_config(arm).num_blocks * (arm.block_size or self.capacity.block_size)}
        host = {"host tier": arm.host_tokens or 0, "swap space": arm.swap_tokens or 0}
        places = [(self._device, device), (torch.device("cpu"), host)] if self._device.type == "cuda" else [(self._device, device | host)]
        for place, parts in places:
            _require_memory(place, {name: tokens * self.bytes_per_token for name, tokens in parts.items() if tokens}, self._config.smaller)

    def start(self, arm: ArmSetup, repeat: int, clock: Clock) -> EngineRunner:
        """A cold engine; raises ``OutOfMemory`` if pool and tier exceed the memory there is."""
        with memory_errors():
            return EngineRunner(Engine(self._model, self._engine_config(arm), clock, transfer=self._make_transfer), clock)

    def close(self) -> None:
        """The model goes with the backend; frozen, its reference cycles would stay, and each run of a sweep would add its weights."""
        gc.unfreeze()

    def _make_transfer(self, store: KVStore) -> Transfer:
        """The device's own, over the link that is simulated if there is one."""
        own, rate = make_transfer(store), self._config.link_gbps
        return own if rate is None else ThrottledTransfer(own, rate * 1e9, store.block_bytes)

    def _engine_config(self, arm: ArmSetup) -> EngineConfig:
        size = arm.block_size or self.capacity.block_size
        return EngineConfig(
            num_blocks=(arm.device_tokens or self.capacity.tokens) // size,
            block_size=size,
            max_batch_tokens=self._config.max_batch_tokens,
            host_tokens=arm.host_tokens,
            chunk_tokens=self.chunk_tokens,
            swap_tokens=arm.swap_tokens,
            prefix_cache=arm.prefix_cache,
            victim=VICTIMS[arm.victim],
            allocation=ALLOCATIONS[arm.allocation],
            copy_on_write=arm.copy_on_write,
            reserve_tokens=arm.reserve_tokens,
            contiguous=arm.contiguous,
            sample_usage=arm.sample_usage,
            device_policy=arm.device_policy or "lru",
            host_policy=arm.host_policy or "lru",
        )


def _find_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise RunFailed("--device cuda: this machine or this build of torch has no CUDA device; use --device cpu, or install a CUDA torch")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def _find_dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _require_memory(device: torch.device, parts: dict[str, int], options: str) -> None:
    """Refuse what cannot fit before it is tried: the operating system would end the process without a word."""
    available = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if sum(parts.values()) > available:
        sizes = " + ".join(f"{name} {size / GIB:.2f} GiB" for name, size in parts.items())
        raise OutOfMemory(
            f"{sizes} exceed the {available / GIB:.2f} GiB that are free on {device.type}; "
            f"lower {options}, use a smaller --dtype, or name a smaller --model"
        )
