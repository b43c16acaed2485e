"""What a run was set up as, and how it ended: the manifest, read in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOG = "log"
"""The experiment of a run that is somebody's log."""


class RunInfo:
    """A manifest's content; sizes in tokens. ``None`` where the run ended before it was known, or where it does not apply.

    ``config``, ``workload``, ``model``, ``environment`` and ``seeds`` are the manifest's own objects, empty where it has none; what a
    workload says of itself only its experiment reads.

    Attributes:
        runner: what executed the requests.
        simulated: nothing was measured: the run is a prediction itself.
        of_log: the run is somebody's log, which no option of ours can repeat.
        arm_details: what the manifest says of each arm, by its name.
        baseline: the arm that all others are compared with: the first one.
        dtype: the weights' and the KV's type, for messages.
        bytes_per_token: KV bytes of one token.
        device: ``cpu`` or ``cuda``.
        link: what is said of the link between device and host, if one is simulated.
        fits: the working set fits the device pool, so that no tier can show anything.
        without: fields that requests left out.
        own_documents: the documents are the user's files, which may share their heads.
        reuse: share of documents that later passes read again; 1 where the option does not apply.
        requests_per_pass: where every pass has as many.
        open_loop: requests are sent at times of their own, whatever became of those before them.
        concurrency: requests in flight at once; ``None`` in an open loop.
    """

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        """What the manifest says; one that was written before the model was loaded lacks most of it."""
        self.config: Mapping[str, Any] = manifest.get("config") or {}
        self.workload: Mapping[str, Any] = manifest.get("workload") or {}
        self.model: Mapping[str, Any] = manifest.get("model") or {}
        self.environment: Mapping[str, Any] = manifest.get("environment") or {}
        self.seeds: Mapping[str, Any] = manifest.get("seeds") or {}
        config, workload, capacity = self.config, self.workload, manifest.get("capacity") or {}

        self.experiment = str(config.get("experiment", "run"))
        self.runner = str(config.get("runner", "engine"))
        self.simulated, self.of_log = self.runner == "simulator", self.experiment == LOG
        self.status = str(manifest.get("status"))
        self.reasons = tuple(map(str, manifest.get("reasons") or ()))
        self.kvbench, self.created = str(manifest.get("kvbench")), str(manifest.get("created"))
        self.command: tuple[str, ...] | None = None if (command := manifest.get("command")) is None else tuple(command)

        self.arm_details: Mapping[str, Mapping[str, Any]] = {arm["name"]: arm for arm in manifest.get("arms") or ()}
        self.arms = tuple(self.arm_details)
        self.baseline = self.arms[0] if self.arms else None
        self.profile: str | None = manifest.get("profile")
        self.rates: Mapping[str, Any] | None = manifest.get("rates")
        self.floors: Mapping[str, Any] | None = manifest.get("floors")
        self.dtype = str(self.model.get("dtype") or "an unknown dtype")
        self.bytes_per_token: int | None = self.model.get("bytes_per_token")
        self.device: str | None = self.environment.get("device")
        self.link = None if (rate := config.get("link_gbps")) is None else f"link simulated at {rate:g} GB/s"

        self.host_tokens: Mapping[str, int | None] = capacity.get("host_tokens") or {}
        self.device_tokens: int | None = capacity.get("device_tokens")
        self.block_size: int | None = capacity.get("block_size")
        self.chunk_tokens: int | None = capacity.get("chunk_tokens")
        self.working_set: int | None = workload.get("working_set_tokens")
        self.working_set_ratio: float | None = manifest.get("working_set_ratio")
        self.fits = self.working_set_ratio is not None and self.working_set_ratio <= 1

        self.document_tokens: tuple[int, ...] = tuple(workload.get("document_tokens") or ())
        self.document_names: tuple[str, ...] | None = None if (names := workload.get("document_names")) is None else tuple(names)
        self.question_tokens: int | None = workload.get("question_tokens")
        self.output_tokens = output if isinstance(output := config.get("output_tokens"), int) else None
        self.without: tuple[str, ...] = tuple(config.get("without") or ())
        self.own_documents = config.get("documents") is not None
        self.reuse = float(config.get("reuse", 1.0))
        self.requests_per_pass: int | None = workload.get("requests_per_pass")
        self.open_loop = config.get("rate") is not None or workload.get("span_s") is not None
        self.concurrency: int | None = config.get("concurrency", None if "span_s" not in workload or self.open_loop else 1)
