"""What a run was set up as, and how it ended: the manifest, read in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOG = "log"
"""The experiment of a run that is somebody's log."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A manifest's content; sizes in tokens. ``None`` where the run ended before it was known, or where it does not apply.

    ``arm_details``: what the manifest says of each arm, by its name. ``config``, ``workload``, ``model``, ``environment`` and ``seeds`` are
    the manifest's own objects, empty where it has none; what a workload says of itself only its experiment reads.
    """

    experiment: str
    status: str
    reasons: tuple[str, ...]
    arms: tuple[str, ...]
    arm_details: Mapping[str, Mapping[str, Any]]
    host_tokens: Mapping[str, int | None]
    device_tokens: int | None
    block_size: int | None
    chunk_tokens: int | None
    document_tokens: tuple[int, ...]
    document_names: tuple[str, ...] | None
    question_tokens: int | None
    output_tokens: int | None
    working_set: int | None
    working_set_ratio: float | None
    profile: str | None
    rates: Mapping[str, Any] | None
    floors: Mapping[str, Any] | None
    config: Mapping[str, Any]
    workload: Mapping[str, Any]
    model: Mapping[str, Any]
    environment: Mapping[str, Any]
    seeds: Mapping[str, Any]
    kvbench: str
    created: str
    command: tuple[str, ...] | None

    @property
    def runner(self) -> str:
        """What executed the requests."""
        return str(self.config.get("runner", "engine"))

    @property
    def simulated(self) -> bool:
        """Whether nothing was measured: the run is a prediction itself."""
        return self.runner == "simulator"

    @property
    def of_log(self) -> bool:
        """Whether the run is somebody's log, which no option of ours can repeat."""
        return self.experiment == LOG

    @property
    def baseline(self) -> str | None:
        """The arm that all others are compared with: the first one."""
        return self.arms[0] if self.arms else None

    @property
    def device(self) -> str | None:
        """``cpu`` or ``cuda``."""
        return self.environment.get("device")

    @property
    def bytes_per_token(self) -> int | None:
        """KV bytes of one token."""
        return self.model.get("bytes_per_token")

    @property
    def dtype(self) -> str:
        """The weights' and the KV's type, for messages."""
        return str(self.model.get("dtype") or "an unknown dtype")

    @property
    def requests_per_pass(self) -> int | None:
        """Where every pass has as many."""
        return self.workload.get("requests_per_pass")

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
        requests: int | None = self.config.get("concurrency", None if "span_s" not in self.workload or self.open_loop else 1)
        return requests

    @property
    def open_loop(self) -> bool:
        """Whether requests are sent at times of their own, whatever became of those before them."""
        return self.config.get("rate") is not None or self.workload.get("span_s") is not None


def read_run_info(manifest: Mapping[str, Any]) -> RunInfo:
    """What a manifest says; one that was written before the model was loaded lacks most of it."""
    config, workload = manifest.get("config") or {}, manifest.get("workload") or {}
    capacity, command = manifest.get("capacity") or {}, manifest.get("command")
    arms, names = {arm["name"]: arm for arm in manifest.get("arms") or ()}, workload.get("document_names")
    return RunInfo(
        experiment=str(config.get("experiment", "run")),
        status=str(manifest.get("status")),
        reasons=tuple(map(str, manifest.get("reasons") or ())),
        arms=tuple(arms),
        arm_details=arms,
        host_tokens=capacity.get("host_tokens") or {},
        device_tokens=capacity.get("device_tokens"),
        block_size=capacity.get("block_size"),
        chunk_tokens=capacity.get("chunk_tokens"),
        document_tokens=tuple(workload.get("document_tokens") or ()),
        document_names=None if names is None else tuple(names),
        question_tokens=workload.get("question_tokens"),
        output_tokens=output if isinstance(output := config.get("output_tokens"), int) else None,
        working_set=workload.get("working_set_tokens"),
        working_set_ratio=manifest.get("working_set_ratio"),
        profile=manifest.get("profile"),
        rates=manifest.get("rates"),
        floors=manifest.get("floors"),
        config=config,
        workload=workload,
        model=manifest.get("model") or {},
        environment=manifest.get("environment") or {},
        seeds=manifest.get("seeds") or {},
        kvbench=str(manifest.get("kvbench")),
        created=str(manifest.get("created")),
        command=None if command is None else tuple(command),
    )
