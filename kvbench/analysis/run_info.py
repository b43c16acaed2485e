"""What a run was set up as: the part of its manifest that analysis reads, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOG = "log"
"""The experiment of a run that is somebody's log."""

BATCH_EXPERIMENTS = frozenset({"pressure", "fragmentation", "sharing"})

IN_ORDER = frozenset({"sequential", "repeat"})
"""Passes that read the documents in the order of the first reading."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replayed trace is; tokens in sum. ``left_out``: requests longer than asked for. ``span_s`` ``None``: a closed loop."""

    trace: str
    requests: int
    left_out: int
    prompt_tokens: int
    output_tokens: int
    span_s: float | None


@dataclass(frozen=True, slots=True)
class Setup:
    """A run's setup; sizes in tokens. ``None`` where the run ended before it was known, or where it does not apply."""

    arms: tuple[str, ...]
    host_tokens: Mapping[str, int | None]
    device_tokens: int | None
    block_size: int | None
    chunk_tokens: int | None
    bytes_per_token: int | None
    document_tokens: tuple[int, ...]
    document_names: tuple[str, ...] | None
    question_tokens: int | None
    output_tokens: int | None
    working_set: int | None
    working_set_ratio: float | None
    expected_requests: int | None
    device: str | None
    profile: str | None
    rates: Mapping[str, Any] | None
    config: Mapping[str, Any]
    replay: Replay | None = None

    @property
    def simulated(self) -> bool:
        """Whether nothing was measured: the run is a prediction itself."""
        return self.config.get("runner") == "simulator"

    @property
    def of_log(self) -> bool:
        """Whether the run is somebody's log, which no option of ours can repeat."""
        return self.config.get("experiment") == LOG

    @property
    def tiered(self) -> bool:
        """Whether the arms are tiers, so that hits, first reads and speedups speak of them; logs of other tools are read so too."""
        return self.config.get("experiment", "cyclic") not in BATCH_EXPERIMENTS

    @property
    def baseline(self) -> str | None:
        """The arm that all others are compared with: the first one."""
        return self.arms[0] if self.arms else None

    @property
    def fits(self) -> bool:
        """Whether the working set fits the device pool, so that no tier can show anything."""
        return self.working_set_ratio is not None and self.working_set_ratio <= 1

    @property
    def own_documents(self) -> bool:
        """Whether the documents are the user's files, which may share their heads."""
        return self.config.get("documents") is not None

    @property
    def reuse(self) -> float:
        """Share of documents that later passes read again; 1 where the option does not apply."""
        return float(self.config.get("reuse", 1.0))

    @property
    def link(self) -> str | None:
        """What is said of the link between device and host, if one is simulated."""
        rate = self.config.get("link_gbps")
        return None if rate is None else f"link simulated at {rate:g} GB/s"

    @property
    def concurrency(self) -> int | None:
        """Requests in flight at once; ``None`` in an open loop."""
        requests: int | None = self.config.get("concurrency", None if self.replay is None or self.open_loop else 1)
        return requests

    @property
    def open_loop(self) -> bool:
        """Whether requests are sent at times of their own, whatever became of those before them."""
        return self.config.get("rate") is not None or (self.replay is not None and self.replay.span_s is not None)

    @property
    def first_judged(self) -> int:
        """The first pass that speaks for a tier: the first reading of documents cannot hit, and a trace is one pass."""
        return 1 if self.replay is None else 0

    def has_tier(self, arm: str) -> bool:
        """Whether the arm has a tier beside the device pool, be it one of size zero or of unknown size."""
        return self.tiered and arm != "none"


def read_setup(manifest: Mapping[str, Any]) -> Setup:
    """The setup of a manifest; one that was written before the model was loaded lacks most of it."""
    config = manifest.get("config") or {}
    capacity = manifest.get("capacity") or {}
    workload = manifest.get("workload") or {}
    arms = tuple(arm["name"] for arm in manifest.get("arms") or [])
    names = workload.get("document_names")
    return Setup(
        arms=arms,
        host_tokens=capacity.get("host_tokens") or {},
        device_tokens=capacity.get("device_tokens"),
        block_size=capacity.get("block_size"),
        chunk_tokens=capacity.get("chunk_tokens"),
        bytes_per_token=(manifest.get("model") or {}).get("bytes_per_token"),
        document_tokens=tuple(workload.get("document_tokens") or ()),
        document_names=None if names is None else tuple(names),
        question_tokens=workload.get("question_tokens"),
        output_tokens=output if isinstance(output := config.get("output_tokens"), int) else None,
        working_set=workload.get("working_set_tokens"),
        working_set_ratio=manifest.get("working_set_ratio"),
        expected_requests=_expected_requests(config, workload, len(arms)),
        device=(manifest.get("environment") or {}).get("device"),
        profile=manifest.get("profile"),
        rates=manifest.get("rates"),
        config=config,
        replay=_replay(workload),
    )


def _replay(workload: Mapping[str, Any]) -> Replay | None:
    if "trace" not in workload:
        return None
    names = ("left_out", "prompt_tokens", "output_tokens", "span_s")
    return Replay(workload["trace"], workload["requests_per_pass"], *(workload[name] for name in names))


def _expected_requests(config: Mapping[str, Any], workload: Mapping[str, Any], arms: int) -> int | None:
    """Requests of the whole run: a pass's, for each pass, arm and repeat; where a request has several answers, those."""
    runs = arms * int(config.get("repeats", 1))
    if "answers" in workload:
        return runs * sum(int(answers) for answers in workload["answers"])
    in_a_pass = workload.get("requests_per_pass")
    passes = ["trace"] if "trace" in workload else workload.get("passes", config.get("passes"))
    return None if in_a_pass is None or passes is None else runs * int(in_a_pass) * len(passes)
