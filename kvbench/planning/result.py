"""What a plan says: plain data, for the reports. Sizes are in tokens and GiB, times in ms; ``None`` is unknown, or there is none."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kvbench.runs.rates import Rates

FORMAT = "kvbench.plan/1"


@dataclass(frozen=True, slots=True)
class KVAmount:
    """An amount of KV; ``units`` are blocks of a pool, chunks of a host tier, tokens where whole documents are kept."""

    tokens: int
    gib: float
    units: int


@dataclass(frozen=True, slots=True)
class PlannedPassRow:
    """One pass of one arm: prompt tokens by tier, and predicted TTFT where rates are known. ``speedup`` is the baseline's p50 ÷ this."""

    arm: str
    pass_label: str
    requests: int
    device: int
    host: int | None
    computed: int
    p50_ms: float | None
    mean_ms: float | None
    speedup: float | None


@dataclass(frozen=True, slots=True)
class CurvePass:
    """One pass at one pool: hit rates (0 to 1) and predicted p50, without a tier and with it."""

    pass_label: str
    none_rate: float
    cpu_rate: float
    none_p50_ms: float | None
    cpu_p50_ms: float | None


@dataclass(frozen=True, slots=True)
class CurveRow:
    """One pool: its later passes (all, where there is one only), and the hit rate of all passes, under LRU and at best.

    ``shown``: a row of the tables; only for these ``best_rate`` is looked for, which takes longer than everything else.
    """

    pool: KVAmount
    shown: bool
    passes: tuple[CurvePass, ...]
    lru_rate: float
    best_rate: float | None


@dataclass(frozen=True, slots=True)
class KV:
    """What a token's KV takes, and how that is counted."""

    bytes_per_token: int
    formula: str
    model: str | None


@dataclass(frozen=True, slots=True)
class UsedRates(Rates):
    """Those of a plan, and the run they were fitted to with the fit's relative errors; ``notes``: why they may not be its own."""

    fitted_to: str | None = None
    median_error: float | None = None
    worst_error: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedServer:
    """The running server that was asked; its sizes are the pool's."""

    url: str
    model: str
    max_tokens: int | None
    version: str | None


@dataclass(frozen=True, slots=True)
class Command:
    """A line for a shell, or a part of one, and what to do with it."""

    what: str
    line: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a report says of a plan.

    Attributes:
        title: its parts.
        documents: that are read, and how many of them the pool holds whole after the first pass.
        smallest_hit, smallest_all: pools in which the headline pass hits at all, and everything that is read again.
        host_smallest: the tier with which everything is found that any tier finds; ``host_exact``: it never evicts in the background.
        host_keeps_all: the tier that never evicts.
        host_recommended: ``None``: no tier is recommended. ``host_gib`` is the value for ``--host-gib``.
        host: the tier that was predicted with.
        commands: what sets that tier up.
    """

    title: tuple[str, ...]
    profile: str
    kv: KV
    server: PlannedServer | None
    documents: int
    pool_documents: int
    working_set: KVAmount
    pool: KVAmount
    headline: str
    smallest_hit: KVAmount | None
    smallest_all: KVAmount | None
    watermark: float
    host_smallest: KVAmount
    host_exact: bool
    host_keeps_all: KVAmount
    host_recommended: KVAmount | None
    host_gib: float | None
    host: KVAmount
    rates: UsedRates | None
    passes: tuple[PlannedPassRow, ...]
    curve: tuple[CurveRow, ...]
    commands: tuple[Command, ...]
    advice: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The plan as plain objects, with its format and version; the names of the fields are the keys."""
        return {"format": FORMAT, **asdict(self), "title": " | ".join(self.title)}
