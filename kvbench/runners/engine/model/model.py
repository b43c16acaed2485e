"""The model: a transformers decoder whose attention is ours. No model code of our own.

A registered attention function receives ``paged=...`` from ``model(...)``'s keyword arguments and leaves everything else to transformers.
Only architectures known to be plain full attention are let in, and each model is probed when it is loaded: every layer must call the
function exactly once, with K and V heads of equal size and no argument the function does not know. (Bloom never calls it and would run
without any cache; Gemma-2 passes ``softcap``, gpt-oss ``s_aux``, Gemma-3 ``sliding_window``.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

from kvbench.errors import UsageError
from kvbench.models.shapes import SHAPES, WEIGHT_SEED
from kvbench.runners.engine.kv.kv_store import KVShape
from kvbench.runners.engine.model import compiled
from kvbench.runners.engine.model.attention import NAME, Decoder, PagedStep, sdpa_decodes
from kvbench.runners.engine.model.decode_kernel import NoKernel, kernel_decoder
from kvbench.runners.engine.model.packed import pack_linears

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Plain full attention, checked against transformers' own output by the tests. SmolLM and SmolLM2 are Llama."""

HARMLESS = frozenset({"is_causal", "output_attentions", "position_ids", "use_cache"})
"""Arguments of an attention call that change nothing about what is computed here."""

CORRECT = "correct its config.json"
"""What to try where a config is wrong."""


def paged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged: PagedStep | Probe,
    scaling: float,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls in each layer; ``query`` is ``[1, heads, rows, head_dim]``, the result ``[1, rows, heads, head_dim]``."""
    if isinstance(paged, Probe):
        paged.see(module.layer_idx, query, key, value, attention_mask, others)
    return paged(module.layer_idx, query, key, value, scaling), None


AttentionInterface.register(NAME, paged_attention)


class Probe:
    """Stands in for a step at load and notes what the layers ask for."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.faults: list[str] = []
        self.kv_heads = self.head_dim = 0

    def see(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        others: dict[str, Any],
    ) -> None:
        """Note one call and what is wrong with it."""
        self.calls.append(layer)
        _, self.kv_heads, _, self.head_dim = key.shape
        if query.shape[1] % self.kv_heads:
            self.faults.append(f"its {query.shape[1]} query heads do not share its {self.kv_heads} KV heads evenly")
        if key.shape != value.shape:
            self.faults.append("its K and V heads differ in size")
        if attention_mask is not None:
            self.faults.append("it passes a mask of its own")
        unknown = sorted(
            name for name, value in others.items() if value is not None and name not in HARMLESS and not (name == "dropout" and not value)
        )
        self.faults += [f"it passes {name}, which paged attention here does not do" for name in unknown]

    def __call__(self, _layer: int, query: torch.Tensor, _key: torch.Tensor, _value: torch.Tensor, _scaling: float) -> torch.Tensor:
        """Some output of the right shape."""
        return query.transpose(1, 2)


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model, and the facts about it that the rest needs."""

    name: str
    network: Any
    shape: KVShape
    vocab: int
    max_tokens: int
    """The longest sequence it was made for."""
    tokenizer: Path
    """Where its ``tokenizer.json`` is, if it has one."""
    parameters: int
    compiled: bool = False
    decoder: Decoder = sdpa_decodes
    decode_attention: str | None = None
    """Which attention a compiled model decodes with on the CPU, and why if it is not the kernel; for the manifest."""

    @torch.inference_mode()
    def logits(self, tokens: list[int], positions: list[int], step: PagedStep, rows: list[int]) -> torch.Tensor:
        """Run one step and return the logits of the listed rows, ``[len(rows), vocab]``; the step's rows get their KV written."""
        device, kept = self.network.device, len(rows)
        if self.compiled:
            tokens, positions, rows = (compiled.at_least_two(items) for items in (tokens, positions, rows))
        inputs: dict[str, Any] = {
            "input_ids": torch.tensor([tokens], device=device),
            "position_ids": torch.tensor([positions], device=device),
            "logits_to_keep": torch.tensor(rows, device=device, dtype=torch.long),
            "use_cache": False,
        }
        if self.compiled:
            with compiled.running(step):
                output = self.network(**inputs)
        else:
            output = self.network(**inputs, paged=step)
        logits: torch.Tensor = output.logits[0, :kept]
        return logits


def load_model(name: str, device: torch.device, dtype: torch.dtype, compile: bool = False) -> Model:
    """Load a Hugging Face folder, or build a named shape with seeded random weights.

    Raises ``UsageError``: no such folder or shape, a folder that transformers cannot read or that lacks weights, or an architecture that is
    refused, with the reason.
    """
    network = _build_shape(name, device, dtype) if name in SHAPES else _load_folder(name, device, dtype)
    network.eval()
    config = network.config
    probe = _probe(name, network)
    shape = KVShape(config.num_hidden_layers, probe.kv_heads, probe.head_dim, dtype)
    parameters = sum(weight.numel() for weight in network.parameters())
    decoder: Decoder = sdpa_decodes
    decode_attention = None
    if compile:
        compiled.compile_network(network)
        if device.type == "cpu":
            decoder, decode_attention = _kernel_or_sdpa(shape, config.num_attention_heads)
    else:
        pack_linears(network)
    return Model(
        name=name,
        network=network,
        shape=shape,
        vocab=config.vocab_size,
        max_tokens=config.max_position_embeddings,
        tokenizer=Path(name) / "tokenizer.json",
        parameters=parameters,
        compiled=compile,
        decoder=decoder,
        decode_attention=decode_attention,
    )


def _kernel_or_sdpa(shape: KVShape, heads: int) -> tuple[Decoder, str]:
    """The decode kernel, or torch's attention where it cannot be had, which is slower and not wrong; and which of them, in words."""
    try:
        return kernel_decoder(shape, heads), "C++ kernel"
    except NoKernel as error:
        print(f"kvbench: decoding uses torch's attention, which is slower than the C++ kernel: {error}", file=sys.stderr)
        return sdpa_decodes, f"torch's; no C++ kernel: {error}"


def count_parameters(name: str) -> int:
    """Weights of a model, from its config alone; raises ``UsageError`` as :func:`load_model` for the config."""
    return sum(weight.numel() for weight in _outline(name).parameters())


def _outline(name: str) -> Any:
    """The network without its weights, which takes no memory; refuses a config that describes none."""
    config = _load_config(name)
    with _blaming(name, "no model can be built from its config"), torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@contextmanager
def _blaming(name: str, what: str) -> Iterator[None]:
    """Make any error one of the config. Only where nothing else can fail: transformers checks few values, and the rest fail anyhow."""
    try:
        yield
    except Exception as error:
        raise UsageError(f"--model {name}: {what} ({_cause(error)}); {CORRECT}") from error


def _load_config(name: str) -> Any:
    """The config of a named shape or of a folder; refuses what the engine does not run. Transformers writes errors alone from here on."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if name in SHAPES:
        return AutoConfig.for_model(**SHAPES[name])
    if not Path(name).is_dir():
        raise UsageError(f"--model {name}: no such folder, and no named shape (there are {', '.join(SHAPES)})")
    with _blaming(name, "its config cannot be read"):
        config = AutoConfig.from_pretrained(name, local_files_only=True)
    _refuse(name, config)
    return config


def _build_shape(name: str, device: torch.device, dtype: torch.dtype) -> Any:
    """A named shape; the same weights on every call, whatever else has drawn random numbers."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.device(device):
        torch.manual_seed(WEIGHT_SEED)
        return AutoModelForCausalLM.from_config(_load_config(name), dtype=dtype, attn_implementation=NAME)


def _load_folder(name: str, device: torch.device, dtype: torch.dtype) -> Any:
    """A folder's network with all of its weights; transformers would draw those that are missing at random."""
    _outline(name)
    try:
        network, report = AutoModelForCausalLM.from_pretrained(
            name, config=_load_config(name), dtype=dtype, local_files_only=True, attn_implementation=NAME, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise UsageError(f"--model {name}: its weights cannot be loaded ({_cause(error)})") from None
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise UsageError(f"--model {name}: its weights have other sizes than its config says") from None
    missing = sorted(report["missing_keys"])  # a tied weight is not among them
    if missing:
        others = f" (and {len(missing) - 1:,} more)" if missing[1:] else ""
        raise UsageError(f"--model {name}: its weights lack {missing[0]}{others}; complete the folder, or {CORRECT}")
    return network.to(device)


def _refuse(name: str, config: Any) -> None:
    """Refuse what is not plain full attention over unquantised weights, by name, and sizes that no model has."""
    named = getattr(config, "architectures", None) or type(config).__name__
    architecture = named[0] if isinstance(named, list) else named
    if architecture not in ARCHITECTURES:
        raise UsageError(
            f"--model {name}: {architecture} is refused: the engine runs plain full attention only ({', '.join(ARCHITECTURES)})"
        )
    if getattr(config, "quantization_config", None) is not None:
        raise UsageError(f"--model {name}: quantised weights are refused; name a folder with plain ones")
    windowed = set(getattr(config, "layer_types", None) or []) - {"full_attention"}
    if windowed or (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)):
        raise UsageError(
            f"--model {name}: {architecture} with {', '.join(sorted(windowed)) or 'a sliding window'} is refused: its KV is not plain"
        )
    if (getattr(config, "rope_parameters", None) or {}).get("rope_type") == "longrope":
        raise UsageError(f"--model {name}: {architecture} with longrope is refused: what it keeps of a token depends on those after it")
    for size in ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings"):
        if (value := getattr(config, size, 1)) < 1:
            raise UsageError(f"--model {name}: {size} is {value} in its config; {CORRECT}")


@torch.inference_mode()
def _probe(name: str, network: Any) -> Probe:
    """Run two tokens through the model and see how its layers call the attention function."""
    probe = Probe()
    device = network.device
    network(
        input_ids=torch.tensor([[0, 1]], device=device),
        position_ids=torch.tensor([[0, 1]], device=device),
        use_cache=False,
        paged=probe,
    )
    if probe.calls != list(range(network.config.num_hidden_layers)):
        probe.faults.insert(0, f"its {network.config.num_hidden_layers} layers made {len(probe.calls)} attention calls")
    if probe.faults:
        raise UsageError(f"--model {name}: {type(network).__name__} is refused: {probe.faults[0]}")
    return probe


def _cause(error: Exception) -> str:
    """An error of a library in one line: its first, with the kind where that says nothing by itself; of a failed check all lines."""
    text = str(error).strip()
    if isinstance(error, StrictDataclassError):
        return " ".join(text.split())
    first = text.partition("\n")[0]
    return first if first and isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: {first}".removesuffix(": ")
