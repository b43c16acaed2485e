"""The hits of the default run, exactly as the design works them out, without a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbench.config.common import DEFAULT_BLOCK_SIZE, DEFAULT_KV_TOKENS
from kvbench.config.settings import given_or
from kvbench.experiments.cyclic.options import DEFAULT_DOCS, CyclicOptions
from kvbench.experiments.cyclic.workload import Cyclic, make_cyclic
from tests.runners.engine.driver import FakeEngine

VOCAB = 2048
NO_HITS = [0] * 10


def hits(config: CyclicOptions, host: int | None) -> tuple[list[list[int]], list[list[int]]]:
    """Device and host hits by pass and document read."""
    workload: Cyclic = make_cyclic(config, given_or(config.docs, DEFAULT_DOCS), VOCAB, Path("none"))
    blocks = DEFAULT_KV_TOKENS // DEFAULT_BLOCK_SIZE
    engine = FakeEngine(blocks, DEFAULT_BLOCK_SIZE, 2048, host, config.chunk_tokens, VOCAB)
    device, tier = [], []
    for plan in workload.passes:
        sequences = []
        for number, request in enumerate(workload.requests("arm", 0, plan)):
            sequence = engine.submit(str(number), list(request.prompt), request.output_tokens)
            while engine.is_busy:
                engine.step()
            engine.drain()
            sequences.append(sequence)
        device.append([sequence.device_hit or 0 for sequence in sequences])
        tier.append([sequence.host_hit or 0 for sequence in sequences])
    return device, tier


REVERSED = [5024, 5024, 5024, 5024, 1408, 0, 0, 0, 0, 0]  # documents 9, 8, 7, 6, 5, ...


def test_default_without_a_tier() -> None:
    device, host = hits(CyclicOptions.model_validate({}), None)
    assert device == [NO_HITS, NO_HITS, REVERSED]
    assert host == [NO_HITS] * 3
    assert sum(REVERSED) == 21_504


def test_default_with_a_tier_that_holds_the_work() -> None:
    config = CyclicOptions.model_validate({})
    workload = make_cyclic(config, given_or(config.docs, DEFAULT_DOCS), VOCAB, Path("none"))
    device, host = hits(config, workload.working_set_chunks(256) * 256)
    assert device == [NO_HITS, NO_HITS, REVERSED]
    assert host[:2] == [NO_HITS, [4864] * 10]
    assert host[2] == [0, 0, 0, 0, 4864 - 1408, 4864, 4864, 4864, 4864, 4864]
    assert [sum(one) for one in host] == [0, 48_640, 27_776]


def test_the_question_differs_by_pass() -> None:
    device, _ = hits(CyclicOptions.model_validate({"question": "vary"}), None)
    assert device == [NO_HITS, NO_HITS, [5008] * 4 + [1344] + [0] * 5]
    assert sum(device[2]) == 21_376


@pytest.mark.parametrize(
    ("host", "second", "third"),
    [
        (0, 0, 0),
        (256, 0, 0),
        (4864, 0, 0),  # one document: each read evicts the one before, so only a document read twice running would hit
        (4864 * 9, 0, 4864 * 4 + 4864 - 1408),
    ],
)
def test_a_tier_that_is_too_small_for_the_cycle(host: int, second: int, third: int) -> None:
    device, tier = hits(CyclicOptions.model_validate({}), host)
    assert device == [NO_HITS, NO_HITS, REVERSED]
    assert [sum(one) for one in tier] == [0, second, third]


def test_a_working_set_that_fits_the_pool_hits_every_time() -> None:
    device, _ = hits(CyclicOptions.model_validate({"docs": 4}), None)
    assert device == [[0] * 4, [5024] * 4, [5024] * 4]
