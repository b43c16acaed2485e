"""What the simulator foresees of a run, pass by pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvbench.config import RunConfig
from kvbench.runners.base import Backend, ClosedLoop, ColdStart, Pace, Request
from kvbench.runners.profiles import PROFILES
from kvbench.runners.simulator.prediction import Predictor
from kvbench.runners.simulator.simulator import Capacity
from kvbench.study_config import TIERED


class Foresight:
    """Of one arm and repeat; cold, as its runner is."""

    def __init__(self, config: RunConfig, backend: Backend, arm: ColdStart) -> None:
        profile, pool = backend.profile(arm.arm), backend.capacity
        size_unknown = arm.setup.tier != "none" and arm.host_tokens is None
        self._predictor: Predictor | None = None
        simulated = config.runner == "simulator"  # such a run is a prediction itself
        if profile is not None and not size_unknown and not simulated and config.experiment in TIERED:
            capacity = Capacity(pool.tokens, pool.block_size, arm.host_tokens, backend.chunk_tokens)
            self._predictor = Predictor(PROFILES[profile], capacity)

    def of(self, requests: Sequence[Request], pace: Pace) -> dict[str, Any] | None:
        """The prediction of the next pass: a promise where requests are sent one at a time, else an estimate.

        ``None`` where the semantics, or a size, are not known.
        """
        if self._predictor is None:
            return None
        prediction = self._predictor.predict(requests)
        return prediction.to_json() | {"exact": prediction.exact and pace == ClosedLoop(1)}
