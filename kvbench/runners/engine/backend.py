"""What engines are made from: the model, loaded once, and the device it is on."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import psutil
import torch

from kvbench.config import DEFAULT_BLOCK_SIZE, DEFAULT_KV_TOKENS, RunConfig, given_or
from kvbench.errors import OutOfMemory, RunFailed
from kvbench.models.shapes import WEIGHT_SEED
from kvbench.runners.base import Clock, ColdStart, DeviceCapacity
from kvbench.runners.engine.engine import Engine, EngineConfig, check_request
from kvbench.runners.engine.model import Model, count_parameters, load_model
from kvbench.runners.engine.runner import EngineRunner, memory_errors
from kvbench.workloads.draws import Draws

GIB = 2**30


class EngineBackend:
    """A loaded model from which each arm gets an engine of its own, cold."""

    nonce = None

    def __init__(self, config: RunConfig) -> None:
        """Load the model.

        Raises:
            UsageError: the model is unknown, unreadable or refused.
            RunFailed: CUDA was asked for and is not there, or the weights exceed the memory.
        """
        self._config = config
        self.chunk_tokens = config.chunk_tokens
        block_size = given_or(config.block_size, DEFAULT_BLOCK_SIZE)
        self.capacity = DeviceCapacity(given_or(config.kv_tokens, DEFAULT_KV_TOKENS) // block_size * block_size, block_size)
        self._device = _find_device(config.device)
        self._dtype = _find_dtype(config.dtype, self._device)
        weights = count_parameters(config.model) * self._dtype.itemsize
        _require_memory(self._device, {"weights": weights})
        with memory_errors():
            self._model: Model = load_model(config.model, self._device, self._dtype, config.compile)

    @property
    def vocab(self) -> int:
        """Token ids are below this."""
        return self._model.vocab

    @property
    def tokenizer(self) -> Path:
        """Where the model's ``tokenizer.json`` is, if it has one."""
        return self._model.tokenizer

    @property
    def bytes_per_token(self) -> int:
        """KV bytes a token takes."""
        return self._model.shape.bytes_per_token

    def profile(self, arm: str) -> str | None:
        """The engine's own, on every arm."""
        return "engine"

    def host_room(self, tokens: int) -> int:
        """The tier evicts only what has no room."""
        return tokens

    def describe(self) -> dict[str, Any]:
        """``model`` and ``device`` as the manifest shows them, and ``weights_seed``."""
        shape = self._model.shape
        model = {
            "name": self._model.name,
            "architecture": self._model.architecture,
            "parameters": self._model.parameters,
            "layers": shape.layers,
            "kv_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "dtype": str(self._dtype).removeprefix("torch."),
            "bytes_per_token": shape.bytes_per_token,
            "vocab": self._model.vocab,
        }
        on_gpu = self._device.type == "cuda"
        device = {
            "device": self._device.type,
            "threads": torch.get_num_threads(),
            "omp_wait": os.environ.get("OMP_WAIT_POLICY") or os.environ.get("GOMP_SPINCOUNT"),
            "gpu": torch.cuda.get_device_name(self._device) if on_gpu else None,
            "driver": f"CUDA {torch.version.cuda}" if on_gpu else None,
        }
        return {"model": model, "device": device, "weights_seed": WEIGHT_SEED}

    def check(self, name: str, prompt_tokens: int, output_tokens: int) -> None:
        """Refuse a request that could never run.

        Raises:
            UsageError: it is longer than the pool or the model allows, with the sizes.
        """
        check_request(name, prompt_tokens, output_tokens, self._model, self._engine_config(None))

    def warm_up(self, prompt_tokens: int) -> None:
        """Run a request, and a batch, on an engine that is thrown away: no measured one pays for first use of kernels and memory.

        The tokens are of a stream of their own, and the cache goes with the engine: nothing of the workload is warm afterwards.
        """
        budget = self._config.max_batch_tokens
        prompt = Draws(self._config.seed, "warm-up").integers(min(prompt_tokens, budget + 64), 0, self.vocab)
        block_size = self.capacity.block_size
        blocks = -(-(len(prompt) + 4) // block_size)
        with memory_errors():
            engine = Engine(self._model, EngineConfig(blocks, block_size, budget, None, self._config.chunk_tokens))
            for batch in ([prompt], [prompt[:1]] * (self._config.concurrency - 1)):  # a compiled model has code of its own for a batch
                for number, tokens in enumerate(batch):
                    engine.submit(f"warm-up-{number}", tokens, 4)
                while engine.is_busy:
                    engine.step()
        del engine
        gc.collect()
        gc.freeze()  # what torch and the model left is not looked at again: a full collection takes 0.4 s, and may fall into a request

    def check_memory(self, host_tokens: int | None) -> None:
        """Refuse an arm whose pool and host tier exceed the memory there is.

        Raises:
            OutOfMemory: with the sizes.
        """
        pool = self.capacity.tokens * self.bytes_per_token
        tier = (host_tokens or 0) * self.bytes_per_token
        if self._device.type == "cuda":
            _require_memory(self._device, {"device pool": pool})
            _require_memory(torch.device("cpu"), {"host tier": tier})
        else:
            _require_memory(self._device, {"device pool": pool, "host tier": tier})

    def start(self, arm: ColdStart, clock: Clock) -> EngineRunner:
        """A cold engine.

        Raises:
            OutOfMemory: pool and tier exceed the memory there is.
        """
        with memory_errors():
            return EngineRunner(Engine(self._model, self._engine_config(arm.host_tokens), clock), clock)

    def close(self) -> None:
        """Nothing is shared by the arms but the model, which goes with the process."""

    def _engine_config(self, host_tokens: int | None) -> EngineConfig:
        size = self.capacity.block_size
        return EngineConfig(self.capacity.tokens // size, size, self._config.max_batch_tokens, host_tokens, self._config.chunk_tokens)


def _find_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise RunFailed("--device cuda: this machine or this build of torch has no CUDA device; use --device cpu, or install a CUDA torch")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def _find_dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _require_memory(device: torch.device, parts: dict[str, int]) -> None:
    """Refuse what cannot fit before it is tried: the operating system would end the process without a word."""
    available = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if sum(parts.values()) > available:
        sizes = " + ".join(f"{name} {size / GIB:.2f} GiB" for name, size in parts.items())
        raise OutOfMemory(
            f"{sizes} exceed the {available / GIB:.2f} GiB that are free on {device.type}; "
            f"lower --kv-tokens, --host-gib or --docs, use a smaller --dtype, or name a smaller --model"
        )
