"""A run from start to end: for each repeat and arm a cold runner, for each pass its requests, and everything into the run folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kvbench
from kvbench.config import RunConfig
from kvbench.environment import describe_machine
from kvbench.errors import Interrupted, KvbenchError, RunFailed
from kvbench.experiments.catalog import make_backend, make_workload
from kvbench.experiments.watcher import Watcher
from kvbench.experiments.workload import Workload
from kvbench.records import PassRecord, RequestRecord
from kvbench.runfolder import RunFolder, read_run
from kvbench.runners.base import Backend, Clock, ClosedLoop, ColdStart, Pace, Request, Runner
from kvbench.runners.profiles import PROFILES
from kvbench.runners.simulator.prediction import Predictor
from kvbench.runners.simulator.simulator import Capacity


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that came to its end: its folder, and why it is not to be trusted (empty: it is)."""

    path: Path
    reasons: list[str]


def run(config: RunConfig, out: Path | None, watcher: Watcher, command: list[str]) -> Finished:
    """Run an experiment into a new folder.

    Args:
        out: the run folder to make; ``None``: ``runs/<time>-<experiment>``.
        command: the command line, for the manifest.

    Raises:
        KvbenchError: it could not be done. A folder in which nothing was measured is removed; one with measurements is kept, its
            status ``interrupted``.
    """
    path = out or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{config.experiment}"
    with RunFolder(path, _first_manifest(config, command)) as folder, ExitStack() as stack:
        try:
            watcher.note(f"loading {config.model}")
            backend = make_backend(config)
            stack.callback(backend.close)
            workload = _prepare(config, backend, folder, watcher)
            _measure(config, backend, workload, folder, watcher)
        except KeyboardInterrupt:
            raise _stopped(folder, Interrupted("interrupted"), "stopped by the user") from None
        except KvbenchError as error:
            raise _stopped(folder, error, str(error)) from None
        except Exception as error:  # a fault of ours; what was measured is kept all the same
            _stopped(folder, RunFailed(), f"internal error: {type(error).__name__}: {error}")
            raise
        finally:
            watcher.ended()
        reasons = _check(path)
        folder.finish("invalid" if reasons else "complete", reasons)
    return Finished(path, reasons)


def _measure(config: RunConfig, backend: Backend, workload: Workload, folder: RunFolder, watcher: Watcher) -> None:
    """The loop: every repeat, arm and pass, each arm from a cold runner."""
    host_tokens: dict[str, int | None] = folder.manifest["capacity"]["host_tokens"]
    clock = Clock()
    for repeat in range(config.repeats):
        for arm in rotated(config.tier, repeat):
            runner = backend.start(ColdStart(arm, repeat, host_tokens[arm], folder.path), clock)
            predictor = _predictor(config, backend, host_tokens[arm])
            try:
                folder.describe_arm(arm, runner.describe())
                for plan in workload.passes:
                    requests, pace = workload.requests(arm, repeat, plan), workload.pace(plan) or ClosedLoop(config.concurrency)
                    prediction = _predict(predictor, requests, pace)
                    watcher.pass_started(arm, repeat, plan.name)
                    folder.append_pass(_run_pass(runner, requests, pace, prediction, folder, watcher))
            finally:
                runner.close()


def _predictor(config: RunConfig, backend: Backend, host_tokens: int | None) -> Predictor | None:
    """What foresees the hits of one arm and repeat; cold, as its runner is. ``None`` where the semantics are not known."""
    if backend.profile is None:
        return None
    pool = backend.capacity
    return Predictor(PROFILES[backend.profile], Capacity(pool.tokens, pool.block_size, host_tokens, config.chunk_tokens))


def _predict(predictor: Predictor | None, requests: Sequence[Request], pace: Pace) -> dict[str, Any] | None:
    """The prediction of the next pass: a promise where requests are sent one at a time, else an estimate."""
    return None if predictor is None else predictor.predict(requests).to_json() | {"exact": pace == ClosedLoop(1)}


def _run_pass(
    runner: Runner, requests: Sequence[Request], pace: Pace, prediction: dict[str, Any] | None, folder: RunFolder, watcher: Watcher
) -> PassRecord:
    """One pass: every request's record goes to the folder as it ends."""
    records: list[RequestRecord] = []

    def on_end(record: RequestRecord) -> None:
        records.append(record)
        folder.append_request(record)
        folder.append_events(runner.take_events())
        watcher.request_ended(record)

    totals = runner.run_pass(requests, pace, on_end)
    place = requests[0].place
    return PassRecord(
        arm=place.arm,
        repeat=place.repeat,
        pass_name=place.pass_name,
        pass_index=place.pass_index,
        requests=len(records),
        failed=sum(record.error is not None for record in records),
        wall_s=max(record.last_token_s or record.end_s for record in records) - min(record.sent_s for record in records),
        totals=totals,
        prediction=prediction,
    )


def rotated(arms: tuple[str, ...], repeat: int) -> tuple[str, ...]:
    """The arms, each repeat beginning one further on, so that no arm always goes first on a machine that heats up or drifts."""
    start = repeat % len(arms)
    return arms[start:] + arms[:start]


def _prepare(config: RunConfig, backend: Backend, folder: RunFolder, watcher: Watcher) -> Workload:
    """Make the workload, refuse what cannot run, complete the manifest, warm up."""
    workload = make_workload(config, backend.vocab, backend.tokenizer, backend.capacity)
    for size in workload.sizes():
        backend.check(*size)
    folder.update(**_full_manifest(config, backend, workload))
    for host_tokens in folder.manifest["capacity"]["host_tokens"].values():
        backend.check_memory(host_tokens)
    watcher.note("warming up")
    backend.warm_up(max(size.prompt_tokens for size in workload.sizes()))
    watcher.started(config.repeats * len(config.tier) * sum(len(plan.doc_ids) for plan in workload.passes))
    return workload


def _first_manifest(config: RunConfig, command: list[str]) -> dict[str, Any]:
    """What is known before the model is loaded."""
    return {
        "kvbench": kvbench.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "config": config.resolved(),
    }


def _full_manifest(config: RunConfig, backend: Backend, workload: Workload) -> dict[str, Any]:
    """What the model, the workload and the machine add."""
    described, pool = backend.describe(), backend.capacity
    working_set = workload.working_set_tokens()
    return {
        "seeds": {"workload": config.seed, "weights": described["weights_seed"]},
        "nonce": None,
        "arms": [{"name": arm, "command": None} for arm in config.tier],
        "profile": backend.profile,
        "model": described["model"],
        "capacity": {
            "device_tokens": pool.tokens,
            "block_size": pool.block_size,
            "host_tokens": {arm: _host_tokens(config, arm, backend, workload) for arm in config.tier},
            "chunk_tokens": None if set(config.tier) == {"none"} else config.chunk_tokens,
        },
        "workload": workload.describe() | {"working_set_tokens": working_set},
        "working_set_ratio": round(working_set / pool.tokens, 4),
        "environment": {**describe_machine(), **described["device"]},
    }


def _host_tokens(config: RunConfig, arm: str, backend: Backend, workload: Workload) -> int | None:
    """Size of an arm's host tier in tokens, of which whole chunks can be used; ``None`` for an arm without one."""
    if arm == "none":
        return None
    if config.host_tokens is not None:
        return config.host_tokens
    if config.host_gib == "auto":
        return workload.working_set_chunks(config.chunk_tokens) * config.chunk_tokens
    return int(config.host_gib * 2**30) // backend.bytes_per_token


def _check(path: Path) -> list[str]:
    """What the run's own records say against it."""
    from kvbench.analysis.validity import check

    return check(read_run(path))


def _stopped(folder: RunFolder, error: KvbenchError, reason: str) -> KvbenchError:
    """Close a run that did not come to its end; returns the error to raise, which names the folder if it holds anything."""
    if not _measured(folder.path):
        folder.close()
        shutil.rmtree(folder.path)
        return error
    folder.finish("interrupted", [reason])
    return type(error)(f"{error}; what was measured is in {folder.path} (kvbench report {folder.path})")


def _measured(path: Path) -> bool:
    return (path / "requests.jsonl").stat().st_size > 0
