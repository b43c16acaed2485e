"""The file of a baseline, small enough for a repository whatever the size of the runs.

Format ``kvbench.baseline/2``, one JSON object:

``format``, ``runs``    how many runs it was made from
``kvbench``, ``created``, ``status``, ``reasons``   of these runs: the newest date, the gravest status, all reasons
``unsteady``    of each run whose times are, a sentence; none in files that were written before there were any
``subject``, ``machine``, ``software``    what was measured, where, and by which versions (:mod:`kvbench.comparison.identity`)
``exact``       whether requests ran one at a time, so that tokens by tier must come out the same
``cells``       a list, one object an arm and pass: ``arm``, ``pass``, ``pass_index``, ``ttft_ms`` (statistics over all repeats),
                ``quantiles`` (TTFT in ms at 5, 25, 50, 75 and 95 %; null: nothing was timed), ``pass_s``, ``repeats`` (an object each:
                ``run``, ``repeat``, ``n``, ``failed``, ``p50``, ``mean``, ``min``, ``max``, and the sums ``prompt``, ``device``,
                ``host``, ``computed``, ``preemptions``; ``metrics`` by name if any were added) and ``requests``
                (``[times, device, host, computed]`` in the order of the pass, equal neighbours counted; null where repeats differ,
                tokens are unknown, or it would be long)

History
    1: first version; of one run, without ``runs`` and ``run``. It is still read.
    2: of one run or several. Added since, which older readers leave out: ``quantiles``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kvbench.analysis.request_table import FIELDS
from kvbench.comparison.baseline import Baseline, Cell, reduce
from kvbench.drawing.clean import clean_json
from kvbench.errors import UsageError
from kvbench.experiments.readings import reading_of
from kvbench.runs.json_schema import document, schema_of
from kvbench.runs.run_folder import Run, read_run

FORMAT = "kvbench.baseline/2"
READ = ("kvbench.baseline/1", FORMAT)
LONGEST = 1000
"""Groups of equal neighbours of one pass above which a file keeps only the sums of its tokens."""

_FACTS = ("kvbench", "created", "status", "exact", "subject", "machine", "software")
_LATENCIES = ("tpot_ms", "itl_ms", "e2el_ms")
_BASELINE = TypeAdapter(Baseline)

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
    return reduce(read_run(path, (*FIELDS, "output_tokens"))) if path.is_dir() else _read_file(path)


def write_baseline(base: Baseline) -> str:
    """The text of the file: a line a cell, so that a repository's diff shows which one changed."""
    line = {name: getattr(base, name) for name in ("runs", *_FACTS, "reasons", "unsteady")}
    whole = {"format": FORMAT, **line, "cells": [_cell_to_json(cell) for cell in base.cells]}
    text = json.dumps(whole, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return clean_json(text).replace('{"arm"', '\n{"arm"') + "\n"


def _cell_to_json(cell: Cell) -> dict[str, Any]:
    unmeasured = [name for name in _LATENCIES if not getattr(cell, name).n]
    line = {name: value for name, value in asdict(cell).items() if name not in unmeasured} | {"requests": None}
    for repeat in line["repeats"]:
        if repeat["metrics"] is None:
            del repeat["metrics"]
    if cell.requests is not None:
        groups = [[len(list(same)), *tokens] for tokens, same in groupby(cell.requests.tolist())]
        line["requests"] = groups if len(groups) <= LONGEST else None
    return {("pass" if name == "pass_label" else name): value for name, value in line.items() if name != "tier"}


def _read_file(path: Path) -> Baseline:
    try:
        line = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: does not exist; name a run folder, or a file that `kvbench baseline` wrote") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error})") from None
    except (ValueError, RecursionError):
        line = None
    found = line.get("format") if isinstance(line, dict) else None
    if found is None:
        raise UsageError(
            f"{path}: neither a run folder nor a file of `kvbench baseline`; if it is a log, `kvbench report --csv {path} --csv FILE` "
            "shows it beside another"
        )
    if found not in READ:
        raise UsageError(f"{path}: format is {found!r}, this kvbench reads {FORMAT!r}, which `kvbench baseline RUN_DIR -o FILE` writes")
    try:
        base = _BASELINE.validate_python({**line, "source": str(path)})
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UsageError(f"{path}: is no whole baseline ({what}); `kvbench baseline` writes one") from None
    places = [(cell.arm, cell.pass_label) for cell in base.cells]
    if twice := [place for place in places if places.count(place) > 1]:
        raise UsageError(f"{path}: has {', '.join(twice[0])} twice, as after a merge; `kvbench baseline` writes a whole one")
    # The arms that have a tier follow from the experiment, so files of every format tell them.
    judges_tiers = reading_of(str(base.subject.get("experiment"))).judges_tiers
    return replace(base, cells=tuple(replace(cell, tier=judges_tiers and cell.arm != "none") for cell in base.cells))


def baseline_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    schema = schema_of(Baseline, {"Repeat": ("metrics",), "Cell": ("tier", "quantiles", *_LATENCIES)})
    properties = {"format": {"const": FORMAT, "type": "string"}, **schema["properties"]}
    del properties["source"], schema["$defs"]["Cell"]["properties"]["tier"]
    required = ["format", *(name for name in schema["required"] if name not in ("source", "unsteady"))]
    return document(FORMAT, schema | {"properties": properties, "required": required})
