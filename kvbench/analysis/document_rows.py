"""The requests of a run one by one, over its repeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kvbench.analysis.latency import timed
from kvbench.analysis.pass_tokens import tokens_of_pass
from kvbench.analysis.prediction import Foreseen, foreseen
from kvbench.analysis.run_view import RunView
from kvbench.analysis.statistics import known_median


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One request of a pass: ``ttft_ms`` is the median over repeats, ``failed`` counts repeats; tokens as in a pass."""

    arm: str
    pass_label: str
    pass_index: int
    position: int
    document: str
    tier: bool
    failed: int
    ttft_ms: float | None
    device: int | None
    host: int | None
    computed: int | None
    foreseen: Foreseen | None


def document_rows(view: RunView) -> Iterator[DocumentRow]:
    """A row for each request of each pass, in the order in which they were read."""
    groups: dict[Any, pd.DataFrame] = dict(iter(view.table.groupby(["arm", "pass_index", "position", "doc_id"])))
    order, names = {arm: place for place, arm in enumerate(view.arms)}, view.info.document_names
    for arm, index, position, doc in sorted(groups, key=lambda key: (order.get(key[0], len(order)), *key[1:])):
        requests = groups[arm, index, position, doc]
        tokens = tokens_of_pass(requests, set())
        yield DocumentRow(
            arm=arm,
            pass_label=view.labels[index],
            pass_index=int(index),
            position=int(position),
            document=names[doc] if names is not None and doc < len(names) else str(doc),
            tier=view.has_tier(arm),
            failed=int(requests["failed"].sum()),
            ttft_ms=known_median(timed(requests)["ttft_ms"]),
            device=tokens.device,
            host=tokens.host,
            computed=tokens.computed,
            foreseen=foreseen(requests, set(), tokens),
        )
