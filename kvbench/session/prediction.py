"""What the simulator predicts of a run, pass by pass."""

from __future__ import annotations

from typing import Any

from kvbench.config.run import RunConfig
from kvbench.experiments.registry import experiments
from kvbench.runners.base import ArmSetup, Backend, ClosedLoop, Pace, Request, RequestSource
from kvbench.runners.profiles import PROFILES
from kvbench.runners.simulator.prediction import Predictor
from kvbench.runners.simulator.simulator import CacheSizes

HALF = ("bfloat16", "float16")
"""Elements so short that a prompt that is found may be answered otherwise than when it was computed."""


class PassPredictor:
    """Predicts the passes of one arm and repeat in their order, from cold caches, as its runner starts."""

    def __init__(self, config: RunConfig, backend: Backend, arm: ArmSetup) -> None:
        profile, pool = backend.profile(arm.name), backend.capacity
        size_unknown = arm.tier != "none" and arm.host_tokens is None
        self._predictor: Predictor | None = None
        self._certain, self._in_half = not config.answers_may_end_early, False
        self._rounded: int | None = None
        """The size of a block, where answers to equal prompts may differ by rounding."""
        predicted = experiments()[config.experiment].predicted and not config.simulated  # a simulated run is a prediction itself
        if profile is not None and not size_unknown and predicted:
            capacity = CacheSizes(pool.tokens, pool.block_size, arm.host_tokens, backend.chunk_tokens)
            rules = PROFILES[profile].under(arm.device_policy, arm.host_policy)
            self._predictor, device = Predictor(rules, capacity), rules.device
            # The simulator takes equal prompts to have equal answers. It matters where a block that is there already is not kept, and where
            # an answer is a part of a later prompt.
            self._in_half = backend.describe()["model"].get("dtype") in HALF
            differ = device is not None and not device.keeps_duplicates and self._in_half
            self._rounded = pool.block_size if differ else None

    def of(self, source: RequestSource, pace: Pace) -> dict[str, Any] | None:
        """The prediction of the next pass: a promise where requests are sent one at a time, else an estimate.

        Prompts that hold answers are promised as well, as what matters is who had the same prompt; not where equal prompts may have other
        answers, and not where a pause lets another request go first. ``None`` where the semantics, or a size, are not known.
        """
        if self._predictor is None:
            return None
        prediction = self._predictor.predict(source, pace)
        answers_differ = self._in_half or any(request.temperature for request in prediction.requests)
        self._certain &= not (source.needs_answers and answers_differ)
        self._certain &= not any(map(self._may_be_answered_otherwise, prediction.requests))
        return prediction.to_json() | {"exact": prediction.exact and self._certain and pace == ClosedLoop(1)}

    def _may_be_answered_otherwise(self, request: Request) -> bool:
        """Whether rounding may decide which blocks a request leaves: its answer fills one. The last token of an answer has no KV."""
        prompt, size = len(request.prompt), self._rounded
        return size is not None and (prompt + request.output_tokens - 1) // size > prompt // size
