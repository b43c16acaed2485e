"""The rates of a plan: given, or fitted to a measured run."""

from __future__ import annotations

from typing import cast

from kvbench.planning.config import PlanConfig
from kvbench.planning.result import UsedRates
from kvbench.runs.rates import Rates


def find_rates(config: PlanConfig, model: str | None) -> UsedRates | None:
    """The rates that turn tokens into times; ``None``: none were asked for. What is given goes over what is fitted.

    Args:
        model: what is planned for, to be held against the run's.

    Raises ``UsageError``: the run to calibrate with cannot be read, or does not tell a rate that was not given.
    """
    if config.calibrate is None:
        if config.prefill_rate is None or config.restore_rate is None:
            return None
        return UsedRates(config.prefill_rate, config.restore_rate, config.overhead_ms or 0.0, None, None, None, ())
    from kvbench.runs.calibration import complete, describe_fit, fit_notes
    from kvbench.runs.run_folder import read_run

    given = Rates(config.prefill_rate, config.restore_rate)
    run = read_run(config.calibrate)
    rates, fitted = complete(given, config.overhead_ms, run, tier=True)
    fit = describe_fit(run, fitted)["fit"]
    notes = tuple(fit_notes(fit["model"], fit["status"], model))
    prefill, restore = cast(float, rates.prefill), cast(float, rates.restore)  # complete has seen to it
    return UsedRates(prefill, restore, rates.overhead_ms, str(config.calibrate), fitted.median_error, fitted.worst_error, notes)
