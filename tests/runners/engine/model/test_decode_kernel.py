"""The decode kernel of ``--compile``: exactly attention, from the right slots, whatever lies in the others."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kvbench.runners.engine.kv.kv_store import KVShape, KVStore
from kvbench.runners.engine.model import decode_kernel
from kvbench.runners.engine.model.attention import Decode, Decoder, Span, sdpa_decodes
from kvbench.runners.engine.model.decode_kernel import NoKernel, kernel_decoder
from kvbench.runners.engine.model.model import Model, load_model
from tests.runners.engine.reference import DEVICE, LOGITS, Reference, WatchedEngine, assert_equal, difference, draw

pytestmark = [
    pytest.mark.skipif(DEVICE.type != "cpu" or shutil.which("g++") is None, reason="the kernel is the CPU's, and needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),  # torch's own, compiling
]

LENGTHS = [1, 2, 15, 16, 17, 64, 65, 128, 333]
LAYOUTS = {"as a projection leaves it": (1, 0, 2), "contiguous": (0, 1, 2), "a head's numbers apart": (2, 0, 1)}
"""Which of heads, rows and head dimension lies outermost in memory, and which inside."""


@pytest.fixture(scope="module")
def fast(model: Model) -> Model:
    """The tests' model, decoding through the kernel."""
    return replace(model, decoder=kernel_decoder(model.shape, model.network.config.num_attention_heads))


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def scattered(lengths: list[int], block_size: int, shape: KVShape) -> tuple[KVStore, list[Span]]:
    """Sequences of these lengths about to decode, their blocks anywhere in a pool whose every other slot holds NaN."""
    counts = [-(-length // block_size) for length in lengths]
    blocks = random.Random(1).sample(range(sum(counts) + 5), sum(counts))
    store = KVStore(shape, len(blocks) + 5, block_size, DEVICE, 0, 1)
    store.device.fill_(float("nan"))
    generator = torch.Generator().manual_seed(2)
    spans = []
    for row, length in enumerate(lengths):
        spans.append(Span(2 * row, 1, length - 1, [blocks.pop() for _ in range(counts[row])]))
        slots = [spans[-1].blocks[j // block_size] * block_size + j % block_size for j in range(length)]
        for layer in range(shape.layers):
            for pool in store.tokens(layer):
                pool[slots] = torch.randn(length, shape.kv_heads, shape.head_dim, generator=generator, dtype=torch.float64).to(shape.dtype)
    return store, spans


def exact(store: KVStore, spans: list[Span], layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
    """Attention by its formula, in float64, a row at a time."""
    rows = []
    for span in spans:
        slots = [span.blocks[j // store.block_size] * store.block_size + j % store.block_size for j in range(span.end)]
        keys, values = (pool[slots].double() for pool in store.tokens(layer))
        scores = torch.einsum("hgd,thd->hgt", query[:, :, span.row].double(), keys) * scaling
        rows.append(torch.einsum("hgt,thd->hgd", scores.softmax(-1), values))
    return torch.stack(rows)


def laid_out(order: tuple[int, int, int], shape: KVShape, group: int, rows: int) -> torch.Tensor:
    """A query ``[kv_heads, group, rows, head_dim]``, as the attention interface gives it: a view of what lies so in memory."""
    sizes = (shape.kv_heads * group, rows, shape.head_dim)
    memory = torch.randn([sizes[place] for place in order], generator=torch.Generator().manual_seed(3)).to(shape.dtype)
    return memory.permute([order.index(place) for place in range(3)]).view(shape.kv_heads, group, rows, shape.head_dim)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("shape", "group", "tolerance"),
    [
        (KVShape(2, 2, 16, torch.float64), 2, 1e-12),
        (KVShape(1, 3, 64, torch.float32), 1, 1e-5),
        (KVShape(1, 1, 20, torch.bfloat16), 7, 2e-2),  # a head that fills no vector; bfloat16 keeps 8 bits
    ],
    ids=["float64", "float32", "bfloat16"],
)
@pytest.mark.usefixtures("three_threads")
def test_it_is_attention_for_every_length_block_size_and_layout(shape: KVShape, group: int, tolerance: float, layout: str) -> None:
    decoder = kernel_decoder(shape, shape.kv_heads * group)
    rows = 2 * len(LENGTHS)
    query = laid_out(LAYOUTS[layout], shape, group, rows)
    for block_size in (1, 5, 16):
        for lengths in (LENGTHS, [333], [1]):
            store, spans = scattered(lengths, block_size, shape)
            output = torch.full((rows, shape.kv_heads, group, shape.head_dim), 7.0, dtype=shape.dtype)
            layer = shape.layers - 1
            for decode in decoder(store, spans):
                decode.attend(layer, query, output, 0.3)
            attended = output[[span.row for span in spans]]
            assert (attended.double() - exact(store, spans, layer, query, 0.3)).abs().max() < tolerance
            others = [row for row in range(rows) if row not in {span.row for span in spans}]
            assert (output[others] == 7).all()


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_an_engine_that_decodes_with_it_gives_what_transformers_gives(fast: Model, reference: Reference, block_size: int) -> None:
    engine = WatchedEngine(fast, 512 // block_size, block_size, budget=37, host=64)
    prompts = [(draw(length, length), 14) for length in (1, 15, 16, 17, 48, 90)]
    sequences = engine.run([*prompts, *prompts], concurrency=4)
    assert [1, 1, 1, 1] in engine.batches
    assert_equal(reference, engine, sequences)


def too_short(span: Span, _size: int) -> Span:
    return replace(span, start=span.start - 1)


def too_long(span: Span, size: int) -> Span:
    return replace(span, start=span.start + 1) if span.end % size else span


def without_the_last_block(span: Span, size: int) -> Span:
    return replace(span, start=span.start // size * size - 1)


def with_a_wrong_block(span: Span, _size: int) -> Span:
    return replace(span, blocks=[span.blocks[1], *span.blocks[1:]])


def intact(span: Span, _size: int) -> Span:
    return span


@pytest.mark.parametrize(
    "fault", [intact, too_short, too_long, without_the_last_block, with_a_wrong_block], ids=lambda fault: fault.__name__
)
def test_a_fault_in_what_it_reads_is_noticed(fast: Model, reference: Reference, fault: Callable[[Span, int], Span]) -> None:
    def faulty(store: KVStore, spans: list[Span]) -> list[Decode]:
        return fast.decoder(store, [fault(span, store.block_size) for span in spans])

    engine = WatchedEngine(replace(fast, decoder=faulty))
    found = difference(reference, engine, engine.run([(draw(1, 42), 12), (draw(2, 30), 12)], concurrency=2))
    assert found < LOGITS if fault is intact else found > LOGITS


def refuse(*_arguments: object) -> Decoder:
    raise NoKernel("no compiler today")


def test_without_it_a_compiled_model_decodes_with_torch_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kvbench.runners.engine.model.model.kernel_decoder", refuse)
    model = load_model(str(folder), DEVICE, torch.float32, compile=True)
    assert model.decoder is sdpa_decodes
    assert "no compiler today" in str(model.decode_attention)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_compiler_that_fails_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decode_kernel.C_TYPES, torch.float32, ("no_such_type", "float"))
    with pytest.raises(NoKernel, match=r"error: .*no_such_type") as caught:
        kernel_decoder(KVShape(1, 2, 16, torch.float32), 4)
    assert "\n" not in str(caught.value)


def test_a_kernel_that_gives_other_numbers_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_kernel, "_build", lambda *_arguments: lambda *_pointers: None)
    with pytest.raises(NoKernel, match="other numbers"):
        kernel_decoder(KVShape(1, 2, 16, torch.float32), 4)


def test_only_a_compiled_model_decodes_with_it(model: Model) -> None:
    assert model.decoder is sdpa_decodes
    assert model.decode_attention is None
