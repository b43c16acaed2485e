"""What a run of ``trace`` says of the trace that it replayed."""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.analysis.run_info import RunInfo


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replayed trace is; tokens in sum. ``left_out``: requests longer than asked for. ``span_s`` ``None``: a closed loop."""

    trace: str
    requests: int
    left_out: int
    prompt_tokens: int
    output_tokens: int
    span_s: float | None


def replay_of(info: RunInfo) -> Replay | None:
    """The trace; ``None`` where the run ended before it was read."""
    names = ("trace", "requests_per_pass", "left_out", "prompt_tokens", "output_tokens", "span_s")
    return Replay(*(info.workload[name] for name in names)) if "trace" in info.workload else None
