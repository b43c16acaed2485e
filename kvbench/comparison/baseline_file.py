"""The file of a baseline, small enough for a repository whatever the size of the runs.

Format ``kvbench.baseline/2``, one JSON object:

``format``, ``runs``    how many runs it was made from
``kvbench``, ``created``, ``status``, ``reasons``   of these runs: the newest date, the gravest status, all reasons
``subject``, ``machine``, ``software``    what was measured, where, and by which versions (:mod:`kvbench.comparison.identity`)
``exact``       whether requests ran one at a time, so that tokens by tier must come out the same
``cells``       a list, one object an arm and pass: ``arm``, ``pass``, ``pass_index``, ``ttft_ms`` (statistics over all repeats),
                ``pass_s``, ``repeats`` (an object each: ``run``, ``repeat``, ``n``, ``failed``, ``p50``, ``mean``, ``min``, ``max``, and
                the sums ``prompt``, ``device``, ``host``, ``computed``, ``preemptions``; ``metrics`` by name if any were
                added) and ``requests``
                (``[times, device, host, computed]`` in the order of the pass, equal neighbours counted; null where repeats differ,
                tokens are unknown, or it would be long)

History
    1: first version; of one run, without ``runs`` and ``run``. It is still read.
    2: of one run or several.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvbench.analysis.request_table import FIELDS
from kvbench.analysis.statistics import Statistics
from kvbench.comparison.baseline import TIERS, Baseline, Cell, Tokens, reduce
from kvbench.errors import UsageError
from kvbench.experiments.readings import reading_of
from kvbench.metrics.repeat import Repeat
from kvbench.runs.json_schema import document, schema_of
from kvbench.runs.run_folder import Run, read_run

FORMAT = "kvbench.baseline/2"
READ = ("kvbench.baseline/1", FORMAT)
LONGEST = 1000
"""Groups of equal neighbours of one pass above which a file keeps only the sums of its tokens."""

_FACTS = ("kvbench", "created", "status", "exact", "subject", "machine", "software")


Side = Baseline | Run | Path | str
"""One side of a comparison, or where it lies: a run folder, or a file that ``kvbench baseline`` wrote."""


def read_side(side: Side) -> Baseline:
    """One side of a comparison.

    Raises:
        UsageError: it is neither a run folder nor a baseline, or of another format.
    """
    if isinstance(side, Baseline):
        return side
    if isinstance(side, Run):
        return reduce(side)
    path = Path(side)
    return reduce(read_run(path, FIELDS)) if path.is_dir() else _read_file(path)


def write_baseline(base: Baseline) -> str:
    """The text of the file: a line a cell, so that a repository's diff shows which one changed."""
    line = {name: getattr(base, name) for name in ("runs", *_FACTS)}
    whole = {"format": FORMAT, **line, "reasons": list(base.reasons), "cells": [_cell_to_json(cell) for cell in base.cells]}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace('{"arm"', '\n{"arm"') + "\n"


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
        "repeats": [_repeat_to_json(repeat) for repeat in cell.repeats],
        "requests": groups if groups is not None and len(groups) <= LONGEST else None,
    }


def _repeat_to_json(repeat: Repeat) -> dict[str, Any]:
    return {name: value for name, value in asdict(repeat).items() if name != "metrics" or value is not None}


def _read_file(path: Path) -> Baseline:
    try:
        line = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: does not exist; name a run folder, or a file that `kvbench baseline` wrote") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from None
    found = line.get("format") if isinstance(line, dict) else None
    if found not in READ:
        raise UsageError(f"{path}: format is {found!r}, this kvbench reads {FORMAT!r}, which `kvbench baseline RUN_DIR -o FILE` writes")
    try:
        return _from_json(_File.model_validate(line), str(path))
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UsageError(f"{path}: is no whole baseline ({what}); `kvbench baseline` writes one") from None


_Times = Annotated[int, Field(ge=1, le=10**7)]
_Count = Annotated[int, Field(ge=0, le=2**53)]


class _CellLine(BaseModel):
    """A cell as a file has it."""

    model_config = ConfigDict(allow_inf_nan=False)

    arm: str
    pass_label: str = Field(alias="pass")
    pass_index: int
    ttft_ms: Statistics
    pass_s: float | None
    repeats: tuple[Repeat, ...]
    requests: list[tuple[_Times, _Count, _Count, _Count]] | None


class _File(BaseModel):
    """What a file holds, with the type of each field: it lies in a repository, where people edit and merge it."""

    runs: int = Field(1, ge=1)
    kvbench: str | None
    created: str | None
    status: str
    reasons: tuple[str, ...]
    exact: bool
    subject: dict[str, Any]
    machine: dict[str, Any]
    software: dict[str, Any]
    cells: tuple[_CellLine, ...]


def baseline_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    schema = schema_of(_File, {"Repeat": ("metrics",)})
    schema["properties"] = {"format": {"const": FORMAT, "type": "string"}, **schema["properties"]}
    schema["required"] = ["format", *schema["required"]]
    return document(FORMAT, schema)


def _from_json(file: _File, source: str) -> Baseline:
    places = [(cell.arm, cell.pass_label) for cell in file.cells]
    if twice := [place for place in places if places.count(place) > 1]:
        raise UsageError(f"{source}: has {', '.join(twice[0])} twice, as after a merge; `kvbench baseline` writes a whole one")
    # The arms that have a tier follow from the experiment, so files of every format tell them.
    judges_tiers = reading_of(str(file.subject.get("experiment"))).judges_tiers
    cells = tuple(
        Cell(
            **dict(cell) | {"requests": _expanded(cell.requests), "tier": judges_tiers and cell.arm != "none"}
        )  # fields of both have equal names
        for cell in file.cells
    )
    return Baseline(source=source, **dict(file) | {"cells": cells})


def _expanded(groups: Sequence[Sequence[int]] | None) -> Tokens | None:
    if groups is None:
        return None
    rows = np.asarray(groups, dtype=np.int64).reshape(-1, 1 + len(TIERS))
    return np.repeat(rows[:, 1:], rows[:, 0], axis=0)
