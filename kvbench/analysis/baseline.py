"""A run reduced to what a comparison needs: per arm and pass each repeat's statistics, and each request's tokens by tier.

Small enough for a repository, whatever the size of the run. Format ``kvbench.baseline/1``, one JSON object:

``format``, ``kvbench``, ``created``, ``status``, ``reasons``   of the run it was made from
``subject``, ``machine``, ``software``    what was measured, where, and by which versions (:mod:`kvbench.analysis.identity`)
``exact``       whether requests ran one at a time, so that tokens by tier must come out the same
``cells``       a list, one object an arm and pass: ``arm``, ``pass``, ``pass_index``, ``ttft_ms`` (statistics over all repeats),
                ``pass_s``, ``repeats`` (an object each: ``repeat``, ``n``, ``failed``, ``p50``, ``mean``, ``min``, ``max``, and the sums
                ``prompt``, ``device``, ``host``, ``computed``, ``preemptions``) and ``requests`` (``[times, device, host, computed]``
                in the order of the pass, equal neighbours counted; null where repeats differ, tokens are unknown, or it would be long)

History
    1: first version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvbench.analysis import identity
from kvbench.analysis.frame import FIELDS, pass_labels, request_frame
from kvbench.analysis.latency import Statistics, pass_seconds, statistics, timed
from kvbench.analysis.setup import read_setup
from kvbench.errors import UsageError
from kvbench.runfolder import Run, read_run

FORMAT = "kvbench.baseline/1"
LONGEST = 1000
"""Groups of equal neighbours of one pass above which a file keeps only the sums of its tokens."""

TIERS = ("device", "host", "computed")
Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeat of a pass. TTFT in ms over its ``n`` requests that gave a token; tokens and preemptions are sums. ``None``: unknown."""

    repeat: int
    n: int
    failed: int
    p50: float | None
    mean: float | None
    min: float | None
    max: float | None
    prompt: int | None
    device: int | None
    host: int | None
    computed: int | None
    preemptions: int | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One pass of one arm: the repeats that finished it, in order, and statistics over all of them.

    ``requests`` has a row a request of the pass, its device, host and computed tokens; ``None`` unless they are known and the same in
    all repeats.
    """

    arm: str
    pass_label: str
    pass_index: int
    ttft_ms: Statistics
    pass_s: float | None
    repeats: tuple[Repeat, ...]
    requests: Tokens | None


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a comparison knows of a run. ``source`` is where it was read from; the rest as in the file format above."""

    source: str
    kvbench: str | None
    created: str | None
    status: str
    reasons: tuple[str, ...]
    exact: bool
    subject: Mapping[str, Any]
    machine: Mapping[str, Any]
    software: Mapping[str, Any]
    cells: tuple[Cell, ...]

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that have a finished pass, the baseline arm first."""
        return tuple(dict.fromkeys(cell.arm for cell in self.cells))

    def to_json(self) -> dict[str, Any]:
        """The file's object."""
        line = {name: getattr(self, name) for name in ("kvbench", "created", "status", "exact", "subject", "machine", "software")}
        return {"format": FORMAT, **line, "reasons": list(self.reasons), "cells": [_cell_to_json(cell) for cell in self.cells]}


def read_side(path: Path) -> Baseline:
    """One side of a comparison: a run folder, or a file that ``kvbench baseline`` wrote.

    Raises:
        UsageError: it is neither, or of another format.
    """
    return reduce(read_run(path, FIELDS)) if path.is_dir() else _read_file(path)


def reduce(run: Run) -> Baseline:
    """The baseline of a run. Passes that a repeat did not finish are left out of that repeat."""
    manifest, setup = run.manifest, read_setup(run.manifest)
    return Baseline(
        source=str(run.path),
        kvbench=manifest.get("kvbench"),
        created=manifest.get("created"),
        status=str(manifest.get("status")),
        reasons=tuple(manifest.get("reasons") or ()),
        exact=setup.concurrency == 1 and setup.config.get("rate") is None,
        subject=identity.subject(manifest),
        machine=identity.machine(manifest),
        software=identity.software(manifest),
        cells=tuple(_cells(run, setup.arms)),
    )


def _cells(run: Run, arms: Sequence[str]) -> Iterator[Cell]:
    frame, labels, seconds = request_frame(run), pass_labels([*run.passes, *run.requests]), pass_seconds(run)
    groups: dict[Any, pd.DataFrame] = dict(iter(frame.groupby(["arm", "pass_index"])))
    totals = {(line["arm"], line["pass_index"], line["repeat"]): line for line in run.passes}
    for arm in arms:
        for index, label in labels.items():
            lines = {repeat: line for (of, at, repeat), line in totals.items() if (of, at) == (arm, index)}
            requests = groups.get((arm, index))
            if requests is None or not lines:
                continue
            requests = requests[requests["repeat"].isin(lines)]
            by_repeat = {repeat: requests[requests["repeat"] == repeat] for repeat in sorted(lines)}
            repeats = tuple(_repeat(repeat, rows, lines[repeat]) for repeat, rows in by_repeat.items() if len(rows))
            ttft = statistics(timed(requests)["ttft_ms"])
            yield Cell(arm, label, index, ttft, seconds.get((arm, index)), repeats, _requests(requests, len(repeats)))


def _repeat(repeat: int, rows: pd.DataFrame, line: Mapping[str, Any]) -> Repeat:
    """One repeat; tokens that are unknown request by request are those the runner counted for the whole pass."""
    ttft, answered = statistics(timed(rows)["ttft_ms"]), rows[~rows["failed"]]
    sums = {name: _sum(answered[name]) for name in ("prompt", *TIERS, "preemptions")}
    counted = {"device": "cached_tokens_device", "host": "cached_tokens_host", "computed": "computed_tokens"}
    sums |= {name: line.get(counted[name]) for name in TIERS if sums[name] is None}
    return Repeat(repeat, ttft.n, int(rows["failed"].sum()), ttft.p50, ttft.mean, ttft.min, ttft.max, **sums)


def _sum(values: pd.Series[float]) -> int | None:
    return None if values.empty or values.isna().any() else int(values.sum())


def _requests(requests: pd.DataFrame, repeats: int) -> Tokens | None:
    """Tokens of each request in the order of the pass, if every repeat has the same."""
    rows = requests.sort_values(["repeat", "position"])
    tokens = rows[list(TIERS)].to_numpy(dtype=np.float64)
    if rows["failed"].any() or np.isnan(tokens).any() or len(tokens) % repeats:
        return None
    by_repeat = tokens.reshape(repeats, -1, len(TIERS)).astype(np.int64)
    return by_repeat[0] if (by_repeat == by_repeat[0]).all() else None


def _cell_to_json(cell: Cell) -> dict[str, Any]:
    groups = None
    if cell.requests is not None:
        groups = [[len(list(same)), *tokens] for tokens, same in groupby(cell.requests.tolist())]
    return {
        "arm": cell.arm,
        "pass": cell.pass_label,
        "pass_index": cell.pass_index,
        "ttft_ms": asdict(cell.ttft_ms),
        "pass_s": cell.pass_s,
        "repeats": [asdict(repeat) for repeat in cell.repeats],
        "requests": groups if groups is not None and len(groups) <= LONGEST else None,
    }


def _read_file(path: Path) -> Baseline:
    try:
        line = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: does not exist; name a run folder, or a file that `kvbench baseline` wrote") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from None
    found = line.get("format") if isinstance(line, dict) else None
    if found != FORMAT:
        raise UsageError(f"{path}: format is {found!r}, this kvbench reads {FORMAT!r}, which `kvbench baseline RUN_DIR -o FILE` writes")
    try:
        return _from_json(line, str(path))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: is no whole baseline ({type(error).__name__}: {error}); `kvbench baseline` writes one") from None


def _from_json(line: Mapping[str, Any], source: str) -> Baseline:
    return Baseline(
        source=source,
        reasons=tuple(line["reasons"]),
        cells=tuple(
            Cell(
                arm=cell["arm"],
                pass_label=cell["pass"],
                pass_index=cell["pass_index"],
                ttft_ms=Statistics(**cell["ttft_ms"]),
                pass_s=cell["pass_s"],
                repeats=tuple(Repeat(**repeat) for repeat in cell["repeats"]),
                requests=_expanded(cell["requests"]),
            )
            for cell in line["cells"]
        ),
        **{name: line[name] for name in ("kvbench", "created", "status", "exact", "subject", "machine", "software")},
    )


def _expanded(groups: list[list[int]] | None) -> Tokens | None:
    if groups is None:
        return None
    rows = np.asarray(groups, dtype=np.int64).reshape(-1, 1 + len(TIERS))
    return np.repeat(rows[:, 1:], rows[:, 0], axis=0)
