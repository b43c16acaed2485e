"""Which requests met an objective (goodput). A failed request meets nothing; the TPOT of a request of one token counts as 0, as in
``vllm bench serve --goodput`` (vLLM 0.32)."""

from __future__ import annotations

import pandas as pd

from kvbench.analysis.statistics import samples_needed
from kvbench.config.slo import Limit, Slo


def share_in_slo(rows: pd.DataFrame, slo: Slo | None) -> float | None:
    """The share of the requests that met every limit of a request, 0 to 1.

    ``None``: there is no objective or it has no such limit, there is no request, or the time of a completed one is unknown.
    """
    limits = [limit for limit in slo.limits if limit.percentile is None] if slo is not None else []
    met = ~rows["failed"]
    if not limits or met.empty:
        return None
    times = [(_times(rows, limit), limit.ms) for limit in limits]
    if any(values[met].isna().any() for values, _ in times):
        return None
    for values, most in times:
        met &= values <= most
    return float(met.mean())


def percentiles_in_slo(rows: pd.DataFrame, slo: Slo | None) -> dict[str, bool | None] | None:
    """Whether the completed requests met each limit at a percentile, by its name; ``None`` where they are too few to say.

    ``None`` as a whole: the objective has no such limit.
    """
    completed = rows[~rows["failed"]]
    limits = [limit for limit in slo.limits if limit.percentile is not None] if slo is not None else []
    return {limit.name: _met(_times(completed, limit), limit) for limit in limits} or None


def _met(times: pd.Series[float], limit: Limit) -> bool | None:
    percentile = limit.percentile or 0
    if len(times) < samples_needed(percentile) or times.isna().any():
        return None
    return bool(times.quantile(percentile / 100) <= limit.ms)


def _times(rows: pd.DataFrame, limit: Limit) -> pd.Series[float]:
    """What a limit is on, in ms; a request of one token spends nothing on further ones."""
    times: pd.Series[float] = rows[f"{limit.latency}_ms"]
    return times.mask((rows["output"] == 1) & times.isna(), 0.0) if limit.latency == "tpot" else times
