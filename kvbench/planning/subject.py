"""What is planned for: a workload, the model's KV, a pool, and the rates, each given, read or asked of a server."""

from __future__ import annotations

from pathlib import Path

from kvbench.config.common import DEFAULT_BLOCK_SIZE, DEFAULT_KV_TOKENS
from kvbench.config.settings import given_or
from kvbench.errors import UsageError
from kvbench.experiments.cyclic.options import DEFAULT_DOCS
from kvbench.experiments.cyclic.workload import make_cyclic
from kvbench.experiments.workload import Workload
from kvbench.models.kv_rules import KVSize
from kvbench.models.kv_size import kv_size, read_vocab
from kvbench.planning.config import PlanConfig
from kvbench.planning.planned_workload import plan_workload
from kvbench.planning.result import KVAmount, UsedRates
from kvbench.planning.server import ServerFacts, ask_server
from kvbench.planning.sizes import Hosts
from kvbench.runners.profiles import PROFILES
from kvbench.runs.rates import Rates

VOCAB = 32_000
"""Token ids are below it where no model says; hits do not depend on it."""


class Subject:
    """One plan's givens.

    ``model`` ``None``: only the size of its KV is known. ``pool`` is in the planned workload's units, ``working_set`` in tokens. ``rates``
    turn tokens into times; ``None``: nothing does. ``longest``: the longest request.
    """

    def __init__(self, config: PlanConfig) -> None:
        """Read and ask what the configuration names, and refuse what could not run.

        Raises ``UsageError``: the model, the documents, the sizes or the run to calibrate with cannot be used; ``RunFailed``: the server
        does not answer.
        """
        self.config = config
        self.server = None if config.from_server is None else ask_server(config.from_server, config.header, config.api_key_env)
        self.model = _model(config, self.server)
        vocab = None if self.model is None else read_vocab(self.model)
        docs, tokenizer = given_or(config.docs, DEFAULT_DOCS), Path(self.model or "") / "tokenizer.json"
        self.workload: Workload = make_cyclic(config, docs, vocab or VOCAB, tokenizer)
        self.working_set = self.workload.working_set_tokens()
        self.longest = max(self.workload.sizes(), key=lambda size: size.prompt_tokens)
        if config.bytes_per_token is not None:
            self.kv = KVSize(config.bytes_per_token, "as given")
        else:
            self.kv = kv_size(self.model or config.model, config.kv_dtype, self.longest.prompt_tokens + self.longest.output_tokens)
        block_size = given_or(config.block_size, DEFAULT_BLOCK_SIZE) if self.server is None else self.server.block_size
        self.planned = plan_workload(PROFILES[config.profile], self.workload, block_size, config.chunk_tokens)
        self.pool = given_or(config.kv_tokens, DEFAULT_KV_TOKENS) // self.planned.unit if self.server is None else self.server.blocks
        self.rates = _find_rates(config, self.model)
        self._check()

    def to_add(self, hosts: Hosts) -> int:
        """The tier to add, in chunks: the smallest that hits everything, if that is certain on this profile; else one that never evicts."""
        return hosts.hits_everything if self.planned.watermark == 1 else hosts.keeps_everything

    def size(self, units: int, tokens_each: int) -> KVAmount:
        """So many units as an amount of KV."""
        return KVAmount(units * tokens_each, self.kv.gib(units * tokens_each), units)

    def _check(self) -> None:
        """Refuse what could not run; ``UsageError``: a request is longer than the pool or the server allows, with the sizes."""
        name, prompt, output = self.longest
        unit, smallest = self.planned.unit, self.planned.smallest_pool
        limit = None if self.server is None else self.server.server.max_tokens
        needs = f"{name}: {prompt:,} prompt and {output:,} output tokens"
        if limit is not None and prompt + output > limit:
            raise UsageError(f"{needs} exceed the {limit:,} that the server takes; shorten the documents, or raise its --max-model-len")
        if self.pool < smallest:
            raise UsageError(
                f"{needs} need a pool of {smallest * unit:,} tokens, this one has {self.pool * unit:,}; "
                "raise --kv-tokens or shorten the documents"
            )


def _model(config: PlanConfig, server: ServerFacts | None) -> str | None:
    """Whose KV is planned for; ``None`` where its size was given. A server's own model, unless the user named one."""
    if config.bytes_per_token is not None:
        return config.model if config.documents is not None else None
    return config.model if server is None or "model" in config.model_fields_set else server.model()


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
