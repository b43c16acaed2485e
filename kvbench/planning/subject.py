"""What is planned for: a workload, the model's KV, a pool, and the rates, each given, read or asked of a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvbench.config.common import DEFAULT_BLOCK_SIZE, DEFAULT_KV_TOKENS
from kvbench.config.settings import given_or
from kvbench.errors import UsageError
from kvbench.experiments.cyclic.options import DEFAULT_DOCS
from kvbench.experiments.cyclic.workload import make_cyclic
from kvbench.experiments.workload import Size as RequestSize
from kvbench.experiments.workload import Workload
from kvbench.models.kv_rules import KVSize
from kvbench.models.kv_size import kv_size, read_vocab
from kvbench.planning.config import PlanConfig
from kvbench.planning.planned_workload import PlannedWorkload, plan_workload
from kvbench.planning.result import KVAmount, UsedRates
from kvbench.planning.server import ServerFacts, ask_server
from kvbench.planning.sizes import Hosts
from kvbench.runners.profiles import PROFILES
from kvbench.runs.rates import Rates

VOCAB = 32_000
"""Token ids are below it where no model says; hits do not depend on it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One plan's givens. ``model`` ``None``: only the size of its KV is known. ``pool`` is in the planned workload's units, ``working_set``
    in tokens. ``rates`` turn tokens into times; ``None``: nothing does."""

    config: PlanConfig
    server: ServerFacts | None
    model: str | None
    kv: KVSize
    workload: Workload
    planned: PlannedWorkload
    pool: int
    working_set: int
    rates: UsedRates | None

    @property
    def longest(self) -> RequestSize:
        """The longest request."""
        return _longest(self.workload)

    def to_add(self, hosts: Hosts) -> int:
        """The tier to add, in chunks: the smallest that hits everything, if that is certain on this profile; else the one that never
        evicts."""
        return hosts.hits_everything if self.planned.watermark == 1 else hosts.keeps_everything

    def size(self, units: int, tokens_each: int) -> KVAmount:
        """So many units as an amount of KV."""
        return KVAmount(units * tokens_each, self.kv.gib(units * tokens_each), units)


def find_subject(config: PlanConfig) -> Subject:
    """Read and ask what the configuration names.

    Raises ``UsageError``: the model, the documents, the sizes or the run to calibrate with cannot be used; ``RunFailed``: the server does
    not answer.
    """
    server = None if config.from_server is None else ask_server(config.from_server, config.header, config.api_key_env)
    model = _model(config, server)
    vocab = None if model is None else read_vocab(model)
    workload = make_cyclic(config, given_or(config.docs, DEFAULT_DOCS), vocab or VOCAB, Path(model or "") / "tokenizer.json")
    longest = _longest(workload)
    if config.bytes_per_token is not None:
        kv = KVSize(config.bytes_per_token, "as given")
    else:
        kv = kv_size(model or config.model, config.kv_dtype, longest.prompt_tokens + longest.output_tokens)
    block_size = given_or(config.block_size, DEFAULT_BLOCK_SIZE) if server is None else server.block_size
    planned = plan_workload(PROFILES[config.profile], workload, block_size, config.chunk_tokens)
    pool = given_or(config.kv_tokens, DEFAULT_KV_TOKENS) // planned.unit if server is None else server.blocks
    subject = Subject(config, server, model, kv, workload, planned, pool, workload.working_set_tokens(), _find_rates(config, model))
    _check(subject)
    return subject


def _model(config: PlanConfig, server: ServerFacts | None) -> str | None:
    """Whose KV is planned for; ``None`` where its size was given. A server's own model, unless the user named one."""
    if config.bytes_per_token is not None:
        return config.model if config.documents is not None else None
    return config.model if server is None or "model" in config.model_fields_set else server.model()


def _longest(workload: Workload) -> RequestSize:
    return max(workload.sizes(), key=lambda size: size.prompt_tokens)


def _find_rates(config: PlanConfig, model: str | None) -> UsedRates | None:
    """Rates that were given, or else fitted to a measured run; ``None``: none were asked for.

    Raises ``UsageError``: the run to calibrate with cannot be read, or does not tell a rate that was not given.
    """
    if config.calibrate is None:
        if config.prefill_rate is None or config.restore_rate is None:
            return None
        return UsedRates(config.prefill_rate, config.restore_rate, config.overhead_ms or 0.0)
    from kvbench.runs.calibration import complete, describe_fit, fit_notes
    from kvbench.runs.run_folder import read_run

    run = read_run(config.calibrate)
    rates, fitted = complete(Rates(config.prefill_rate, config.restore_rate), config.overhead_ms, run, tier=True)
    fit = describe_fit(run, fitted)["fit"]
    notes = tuple(fit_notes(fit["model"], fit["status"], model))
    return UsedRates(rates.prefill, rates.restore, rates.overhead_ms, str(config.calibrate), fitted.median_error, fitted.worst_error, notes)


def _check(subject: Subject) -> None:
    """Refuse what could not run; ``UsageError``: a request is longer than the pool or the server allows, with the sizes."""
    name, prompt, output = subject.longest
    unit, smallest = subject.planned.unit, subject.planned.smallest_pool
    limit = None if subject.server is None else subject.server.server.max_tokens
    needs = f"{name}: {prompt:,} prompt and {output:,} output tokens"
    if limit is not None and prompt + output > limit:
        raise UsageError(f"{needs} exceed the {limit:,} that the server takes; shorten the documents, or raise its --max-model-len")
    if subject.pool < smallest:
        raise UsageError(
            f"{needs} need a pool of {smallest * unit:,} tokens, this one has {subject.pool * unit:,}; "
            "raise --kv-tokens or shorten the documents"
        )
