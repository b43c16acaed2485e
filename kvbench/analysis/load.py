"""What load gave: TPOT, ITL and E2EL of requests, and what a pass delivered in its time.

Names and formulas are those of ``vllm bench serve`` (vLLM 0.32, ``calculate_metrics`` in ``vllm/benchmarks/serve.py``): E2EL is last token
− sent, TPOT is (E2EL − TTFT) ÷ (output tokens − 1), ITL is the gap between two tokens, and throughput counts completed requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvbench.analysis.goodput import percentiles_in_slo, share_in_slo
from kvbench.analysis.statistics import statistics
from kvbench.config.slo import Slo

FIELDS = ("sent_s", "last_token_s", "output_tokens", "token_times_s", "chunk_tokens")
"""The fields of a request line that :func:`load_columns` reads, beside ``ttft_ms``."""


def load_columns(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of a request table that speak of load, a value a line.

    ``output`` in tokens, ``e2el_ms`` and ``tpot_ms`` in milliseconds, NaN where unknown (a request of one token has no TPOT);
    ``token_times`` and ``chunks`` are the lines' own lists, for :func:`itl_ms`.
    """

    def numbers(name: str) -> npt.NDArray[np.float64]:
        return np.array([line.get(name) for line in lines], dtype=np.float64)

    output, e2el = numbers("output_tokens"), (numbers("last_token_s") - numbers("sent_s")) * 1e3
    tpot = np.full(len(lines), np.nan)
    np.divide(e2el - numbers("ttft_ms"), output - 1, out=tpot, where=output > 1)
    lists = {"token_times": [line.get("token_times_s") for line in lines], "chunks": [line.get("chunk_tokens") for line in lines]}
    return {"output": output, "e2el_ms": e2el, "tpot_ms": tpot, **lists}


def itl_ms(rows: pd.DataFrame) -> npt.NDArray[np.float64]:
    """The gap before each output token but the first of each request, in milliseconds, in no promised order.

    Of tokens that came in one chunk all but one have a gap of 0. A request whose server did not say how many tokens a chunk held has none.

    Args:
        rows: of a request table with :func:`load_columns`.
    """
    known = [(times, counts) for times, counts in zip(rows["token_times"], rows["chunks"], strict=True) if times and counts]
    sizes = np.array([len(times) for times, _ in known], dtype=np.int64)
    times = np.fromiter(chain.from_iterable(times for times, _ in known), np.float64, sizes.sum())
    gaps = np.diff(times)
    between_requests = np.cumsum(sizes)[:-1] - 1
    together = int(sum(sum(counts) for _, counts in known) - sizes.sum())
    return np.concatenate((np.delete(gaps, between_requests) * 1e3, np.zeros(together)))


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one repeat of a pass delivered a second: completed requests, their output tokens, these with their prompts, good requests.

    ``None``: the time, a request's tokens, or how many were good, are unknown.
    """

    request: float | None = None
    output: float | None = None
    total: float | None = None
    good: float | None = None


def throughput(rows: pd.DataFrame, seconds: float | None, in_slo: float | None = None) -> Throughput:
    """Of one repeat of a pass.

    Args:
        rows: its requests, failed ones too.
        seconds: first send to last token.
        in_slo: the share of its requests that met the objective.
    """
    completed = rows[~rows["failed"]]
    if not seconds or completed.empty:
        return Throughput()
    output, prompt = (float(completed[name].sum(skipna=False)) / seconds for name in ("output", "prompt"))
    good = None if in_slo is None else in_slo * len(rows) / seconds
    return Throughput(len(completed) / seconds, _known(output), _known(output + prompt), good)


def of_pass(rows: pd.DataFrame, lines: Sequence[Mapping[str, Any]], slo: Slo | None) -> dict[str, Any]:
    """What load gave in a pass, by the field names of :class:`kvbench.analysis.pass_rows.PassRow`.

    Latencies are over the completed requests of all repeats; rates are the mean of the repeats that finished the pass.

    Args:
        lines: of ``passes.jsonl``, a repeat each.
    """
    completed = rows[~rows["failed"]]
    repeats = [(rows[rows["repeat"] == line["repeat"]], line["wall_s"]) for line in lines]
    rates = [throughput(own, seconds, share_in_slo(own, slo)) for own, seconds in repeats]
    return {
        "tpot_ms": statistics(completed["tpot_ms"].dropna()),
        "itl_ms": statistics(itl_ms(completed)),
        "e2el_ms": statistics(completed["e2el_ms"].dropna()),
        "request_throughput": _mean([one.request for one in rates]),
        "output_throughput": _mean([one.output for one in rates]),
        "total_token_throughput": _mean([one.total for one in rates]),
        "request_goodput": _mean([one.good for one in rates]),
        "slo_share": share_in_slo(rows, slo),
        "slo_percentiles": percentiles_in_slo(rows, slo),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; ``None`` where any value is unknown, or there is none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
