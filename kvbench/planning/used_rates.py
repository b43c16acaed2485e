"""The rates of a plan: given, or fitted to a measured run."""

from __future__ import annotations

from kvbench.errors import UsageError
from kvbench.planning.config import PlanConfig
from kvbench.planning.result import UsedRates


def find_rates(config: PlanConfig) -> UsedRates | None:
    """The rates that turn tokens into times; ``None``: none were asked for. What is given goes over what is fitted.

    Raises:
        UsageError: the run to calibrate with cannot be read, or does not tell a rate that was not given.
    """
    if config.calibrate is None:
        if config.prefill_rate is None or config.restore_rate is None:
            return None
        return UsedRates(config.prefill_rate, config.restore_rate, config.overhead_ms or 0.0, None, None, None)
    from kvbench.calibration import calibrate
    from kvbench.runfolder import read_run

    fitted = calibrate(read_run(config.calibrate))
    prefill, restore = config.prefill_rate or fitted.rates.prefill, config.restore_rate or fitted.rates.restore
    if prefill is None:
        raise UsageError(f"--calibrate {config.calibrate}: no request of it tells the time of computing; give --prefill-rate")
    if restore is None:
        raise UsageError(f"--calibrate {config.calibrate}: no request of it tells the time of a load from a host tier; give --restore-rate")
    overhead = fitted.rates.overhead_ms if config.overhead_ms is None else config.overhead_ms
    return UsedRates(prefill, restore, overhead, str(config.calibrate), fitted.median_error, fitted.worst_error)
