"""A run from start to end: for each repeat and arm a cold runner, for each pass its requests, and everything into the run folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

from kvbench.config.run import RunConfig
from kvbench.errors import Interrupted, KvbenchError, RunFailed, UsageError
from kvbench.experiments.experiment import RunnerFacts
from kvbench.experiments.registry import experiments
from kvbench.experiments.workload import Workload
from kvbench.runners.base import ArmSetup, Backend, Clock, ClosedLoop, OpenLoop, Pace, RequestSource, Runner, as_source
from kvbench.runners.registry import RUNNERS
from kvbench.runs.records import PassRecord, RequestRecord
from kvbench.runs.run_folder import RunFolder, control_folder, read_manifest, read_run, set_status
from kvbench.session.arms import make_arms
from kvbench.session.manifest import first_manifest, full_manifest
from kvbench.session.prediction import PassPredictor
from kvbench.session.watcher import Watcher
from kvbench.workloads.arrivals import at_rate
from kvbench.workloads.draws import Draws
from kvbench.workloads.passes import Pass

MOST_AUTO_S = 120
"""Seconds that the repeats of ``--repeats auto`` may take together, unless the first takes longer by itself."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that came to its end: its folder, and why it is invalid (empty: it is)."""

    path: Path
    reasons: list[str]


def run(config: RunConfig, out: Path | None, watcher: Watcher, command: list[str]) -> Finished:
    """Run an experiment into a new folder, and its controls below that.

    Args:
        out: the run folder to make; ``None``: :func:`default_folder`.
        command: the command line, for the manifest.

    Raises:
        KvbenchError: it could not be done. A folder in which nothing was measured is removed; one with measurements is kept, its
            status ``interrupted``.
    """
    path = out or default_folder(config)
    with ExitStack() as opened:
        finished, backend = _run_once(config, path, watcher, command, opened)
        controls = experiments()[config.experiment].controls(config, read_manifest(path))
        loaded = backend if config.runner == "engine" else None  # servers are started anew, in a folder of their own
        return _run_controls(controls, finished, watcher, command, loaded) if controls else finished


def _run_controls(
    controls: Mapping[str, RunConfig], finished: Finished, watcher: Watcher, command: list[str], loaded: Backend | None
) -> Finished:
    """The controls of a finished run, and what they say of it."""
    path = finished.path
    try:
        set_status(path, "running")
        for name, control in controls.items():
            with ExitStack() as opened:
                _run_once(control, control_folder(path, name), watcher, command, opened, loaded)
        reasons = _check(path)
    except (Exception, KeyboardInterrupt) as error:
        why = str(error) or "interrupted"
        with suppress(RunFailed, UsageError):
            set_status(
                path, "invalid" if finished.reasons else "interrupted", [*finished.reasons, f"its controls were not finished: {why}"]
            )
        if isinstance(error, KvbenchError):
            raise type(error)(f"the controls were not finished: {why}; the run itself was, in {path} (kvbench report {path})") from None
        raise
    set_status(path, "invalid" if reasons else "complete", reasons)
    return Finished(path, reasons)


def _run_once(
    config: RunConfig, path: Path, watcher: Watcher, command: list[str], opened: ExitStack, loaded: Backend | None = None
) -> tuple[Finished, Backend]:
    """One run into a new folder, and the backend it was measured on.

    Args:
        opened: closes that backend, unless it is ``loaded``: one that was there before.
    """
    with RunFolder(path, first_manifest(config, command)) as folder:
        try:
            watcher.note(f"loading {config.model}")
            if (backend := loaded) is None:
                backend = RUNNERS[config.runner].make_backend(config, path, watcher.note)
                opened.callback(backend.close)
            workload, arms = _prepare(config, backend, folder, watcher)
            _measure(config, backend, workload, arms, folder, watcher)
            reasons = _check(path)
        except KeyboardInterrupt:
            raise _stopped(folder, Interrupted("interrupted"), "stopped by the user") from None
        except KvbenchError as error:
            raise _stopped(folder, error, str(error)) from None
        except OSError as error:  # as where the disk of something else is full
            why = f"{error.filename or 'a file or connection'}: {error.strerror or error}"
            raise _stopped(folder, RunFailed(why), why) from None
        except Exception as error:  # a fault of ours; what was measured is kept all the same
            _stopped(folder, RunFailed(), f"internal error: {type(error).__name__}: {error}")
            raise
        finally:
            watcher.ended()
        try:
            folder.finish("invalid" if reasons else "complete", reasons)
        except RunFailed as error:
            raise _stopped(folder, error, str(error)) from None
    return Finished(path, reasons), backend


def default_folder(config: RunConfig) -> Path:
    """``runs/<time>-<experiment>``."""
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{config.experiment}"


def _measure(
    config: RunConfig, backend: Backend, workload: Workload, arms: Sequence[ArmSetup], folder: RunFolder, watcher: Watcher
) -> None:
    """The loop: every repeat, arm and pass, each arm from a cold runner."""
    clock = Clock()
    for repeat in _repeats(config, folder, watcher):
        if backend.nonce is not None and repeat > 0:  # the servers know the documents of the repeat before
            workload = _make_workload(config, backend, repeat)
        for arm in rotated(arms, repeat):
            predictor = PassPredictor(config, backend, arm)
            runner = backend.start(arm, repeat, clock)
            try:
                folder.describe_arm(arm.name, runner.describe())
                for pass_ in workload.passes:
                    source = as_source(workload.requests(arm.name, repeat, pass_))
                    pace = workload.pace(pass_) or _pace(config, pass_, len(source.first))
                    prediction = predictor.of(source, pace)
                    watcher.pass_started(arm.name, repeat, pass_.name)
                    folder.append_pass(_run_pass(runner, source, pace, prediction, folder, watcher))
            finally:
                runner.close()


def _repeats(config: RunConfig, folder: RunFolder, watcher: Watcher) -> Iterator[int]:
    """The repeats; of ``auto`` as many of the planned ones as take :data:`MOST_AUTO_S`, judged by the first. The manifest is told."""
    count, began = config.planned_repeats, monotonic()
    yield 0
    fit = max(1, int(MOST_AUTO_S // (monotonic() - began)))
    if config.repeats == "auto" and fit < count:
        folder.update(config=folder.manifest["config"] | {"repeats": fit})
        watcher.note(f"{fit} of {count} repeats, as more would take above {MOST_AUTO_S} s (--repeats {count})")
        count = fit
    yield from range(1, count)


def _pace(config: RunConfig, pass_: Pass, count: int) -> Pace:
    """When so many requests of a pass are sent that has no times of its own; the same times in every arm and repeat."""
    if config.rate is None:
        return ClosedLoop(config.concurrency)
    return OpenLoop(at_rate(config.arrivals, count, config.rate, Draws(config.seed, "arrivals", pass_.index)))


def _run_pass(
    runner: Runner, source: RequestSource, pace: Pace, prediction: dict[str, Any] | None, folder: RunFolder, watcher: Watcher
) -> PassRecord:
    """One pass: every request's record goes to the folder as it ends."""
    records: list[RequestRecord] = []

    def on_end(record: RequestRecord) -> None:
        records.append(record)
        folder.append_request(record)
        folder.append_events(runner.take_events())
        watcher.request_ended(record)

    totals = runner.run_pass(source, pace, on_end)
    key = source.first[0].key
    return PassRecord(
        arm=key.arm,
        repeat=key.repeat,
        pass_name=key.pass_name,
        pass_index=key.pass_index,
        requests=len(records),
        failed=sum(record.error is not None for record in records),
        wall_s=_wall_s(records, totals.quiesce_s),
        totals=totals,
        prediction=prediction,
    )


def _wall_s(records: Sequence[RequestRecord], quiesce_s: float | None) -> float | None:
    """First send to last token, without what the runner took for itself; ``None`` where that, or every last token, is unknown."""
    if quiesce_s is None or all(record.last_token_s is None for record in records):
        return None
    first = min(record.scheduled_s if record.sent_s is None else record.sent_s for record in records)  # never sent: when it was to be
    return max(record.last_token_s or record.end_s for record in records) - first - quiesce_s


def rotated(arms: Sequence[ArmSetup], repeat: int) -> list[ArmSetup]:
    """The arms, each repeat beginning one further on, so that no arm always goes first on a machine that heats up or drifts."""
    start = repeat % len(arms)
    return [*arms[start:], *arms[:start]]


def _prepare(config: RunConfig, backend: Backend, folder: RunFolder, watcher: Watcher) -> tuple[Workload, Sequence[ArmSetup]]:
    """Make the workload, refuse what cannot run, complete the manifest, warm up."""
    workload = _make_workload(config, backend, 0)
    for size in workload.sizes():
        backend.check(*size)
    arms = make_arms(config, backend, workload)
    folder.update(**full_manifest(config, backend, workload, arms))
    for arm in arms:
        _check_chunks(backend, arm)
        backend.check_memory(arm)
    watcher.note("warming up")
    backend.warm_up(max(size.prompt_tokens for size in workload.sizes()))
    answers = workload.describe().get("answers") or [len(pass_.doc_ids) for pass_ in workload.passes]
    watcher.started(config.planned_repeats * len(arms) * sum(answers))
    return workload, arms


def _make_workload(config: RunConfig, backend: Backend, repeat: int) -> Workload:
    """The requests of a repeat.

    On servers that were there before, a nonce makes what is drawn other than for any other run or repeat, as they may know that. The user's
    own texts and tokens stay as they are.
    """
    if backend.nonce is not None:
        config = config.model_copy(update={"seed": Draws(config.seed, "salt", f"{backend.nonce}/{repeat}").integers(1, 0, 2**63)[0]})
    facts = RunnerFacts(backend.vocab, backend.tokenizer, backend.capacity)
    return experiments()[config.experiment].make_workload(config, facts)


def _check_chunks(backend: Backend, arm: ArmSetup) -> None:
    """Refuse a tier whose chunks are not whole blocks; where a server chose the size of a block, nobody could tell before."""
    if arm.host_tokens is not None and backend.chunk_tokens % backend.capacity.block_size:
        raise UsageError(
            f"--chunk-tokens {backend.chunk_tokens} is not a multiple of the pool's block size, {backend.capacity.block_size}; "
            f"give a multiple, or --block-size"
        )


def _check(path: Path) -> list[str]:
    """What the run's own records, and its controls, say against it."""
    from kvbench.experiments.readings import ExperimentView
    from kvbench.summary.controls import read_controls
    from kvbench.summary.trust import reasons_of

    view = ExperimentView(read_run(path))
    return list(reasons_of(view, read_controls(view)))


def _stopped(folder: RunFolder, error: KvbenchError, reason: str) -> KvbenchError:
    """Close a run that did not come to its end; returns the error to raise, which names the folder if it holds anything."""
    if not _measured(folder.path) and not any(folder.path.glob("*.log")):
        folder.close()
        shutil.rmtree(folder.path, ignore_errors=True)
        return error
    with suppress(RunFailed):  # the same disk; the error to raise is the first one
        folder.finish("interrupted", [reason])
    if not _measured(folder.path):
        return type(error)(f"{error}; the servers' logs are in {folder.path}")
    return type(error)(f"{error}; what was measured is in {folder.path} (kvbench report {folder.path})")


def _measured(path: Path) -> bool:
    file = path / "requests.jsonl"
    return file.exists() and file.stat().st_size > 0
