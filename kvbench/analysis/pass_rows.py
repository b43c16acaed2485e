"""A run pass by pass, and request by request: latency, speedup over the baseline, and tokens by tier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kvbench.analysis import load, noise
from kvbench.analysis.latency import timed
from kvbench.analysis.prediction import Foreseen, foreseen
from kvbench.analysis.request_table import counted_in_pass, tokens_of_pass
from kvbench.analysis.run_view import RunView
from kvbench.analysis.speedup import Speedup, speedup
from kvbench.analysis.statistics import Statistics, known_median, statistics


@dataclass(frozen=True, slots=True)
class PassRow:
    """One pass of one arm. ``ttft_ms`` is over the requests of all repeats that gave a token; tokens are those of one repeat.

    ``answered`` counts requests that did not fail. ``pass_label`` tells passes of the same name apart. ``tier`` says whether the arm has a
    host tier. ``foreseen`` is ``None`` where nothing was predicted; any other ``None`` is unknown. ``noise``:
    :mod:`kvbench.analysis.noise`; ``outliers``: :mod:`kvbench.analysis.spread`. ``tpot_ms`` to ``slo_percentiles``:
    :func:`kvbench.analysis.load.of_pass`. ``metrics``: those that were added, by name.
    """

    arm: str
    pass_name: str
    pass_label: str
    pass_index: int
    answered: int
    failed: int
    ttft_ms: Statistics
    speedup: Speedup
    pass_s: float | None
    tier: bool
    prompt: int | None
    device: int | None
    host: int | None
    computed: int | None
    device_hit_rate: float | None
    host_hit_rate: float | None
    repeats_agree: bool
    foreseen: Foreseen | None
    noise: float | None
    outliers: int
    tpot_ms: Statistics
    itl_ms: Statistics
    e2el_ms: Statistics
    request_throughput: float | None
    output_throughput: float | None
    total_token_throughput: float | None
    request_goodput: float | None
    slo_share: float | None
    slo_percentiles: Mapping[str, bool | None] | None
    metrics: Mapping[str, float | None] | None = None


Measure = Callable[[pd.DataFrame, Sequence[Mapping[str, Any]]], Mapping[str, float | None] | None]
"""The metrics of a pass that were added, from its requests and its lines; ``None``: there are none."""


def pass_rows(view: RunView, outliers: Mapping[tuple[str, int], int], added: Measure) -> Iterator[PassRow]:
    """A row for each arm and pass that has a request, arms in their order.

    Args:
        outliers: how many each arm and pass has.
        added: measures what was added (:func:`kvbench.metrics.registry.of_pass`).
    """
    names = {int(line["pass_index"]): str(line["pass"]) for line in view.requests}
    baseline = view.info.baseline or ""
    for arm in view.arms:
        for index, label in view.labels.items():
            requests = view.by_pass.get((arm, index))
            if requests is None:
                continue
            lines = view.finished(arm, index)
            finished = {line["repeat"] for line in lines}
            tokens = tokens_of_pass(requests, finished)
            if tokens.device is None and (counted := counted_in_pass(lines)).device is not None:
                tokens = counted
            base = view.by_pass.get((baseline, index), requests.iloc[:0])
            itself = arm == baseline and not timed(requests).empty  # then it is exactly 1, and there is nothing to resample
            yield PassRow(
                arm=arm,
                pass_name=names[index],
                pass_label=label,
                pass_index=index,
                answered=int((~requests["failed"]).sum()),
                failed=int(requests["failed"].sum()),
                ttft_ms=statistics(timed(requests)["ttft_ms"]),
                speedup=Speedup(p50=1.0, mean=1.0) if itself else speedup(base, requests),
                pass_s=view.pass_seconds(arm, index),
                tier=view.has_tier(arm),
                prompt=tokens.prompt,
                device=tokens.device,
                host=tokens.host,
                computed=tokens.computed,
                device_hit_rate=tokens.hit_rate(tokens.device),
                host_hit_rate=tokens.hit_rate(tokens.host),
                repeats_agree=tokens.same,
                foreseen=foreseen(requests, finished, tokens),
                noise=noise.of_pass(requests),
                outliers=outliers.get((arm, index), 0),
                **load.of_pass(requests, lines, view.slo),
                metrics=added(requests, lines),
            )


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
