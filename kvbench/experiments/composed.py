"""The configuration of a run, composed: the options of its experiment and those of its runner, as one flat object."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import create_model
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from kvbench.config.run import RunConfig
from kvbench.config.settings import Setting, flag, load, read_file, setting_of
from kvbench.errors import UsageError
from kvbench.experiments.registry import experiments
from kvbench.runners.registry import RUNNERS

COMMAND = "kvbench run"

_composed: dict[tuple[type[RunConfig], type[RunConfig]], type[RunConfig]] = {}


def compose(experiment: str, runner: str) -> type[RunConfig]:
    """The class of a run's configuration.

    Raises:
        KeyError: there is no such experiment or runner.
    """
    own, executes = experiments()[experiment].options, RUNNERS[runner].options
    if (own, executes) not in _composed:
        _composed[own, executes] = create_model(f"{own.__name__}On{executes.__name__}", __base__=(own, executes))
    return _composed[own, executes]


def all_fields() -> dict[str, FieldInfo]:
    """Every option of any run, by field name; where several runs have one of that name, the first one's."""
    options = [*(item.options for item in experiments().values()), *(item.options for item in RUNNERS.values())]
    return {name: field for kind in reversed(options) for name, field in kind.model_fields.items()}


def all_settings() -> dict[str, Setting]:
    """How each of them is shown."""
    return {name: setting_of(field) for name, field in all_fields().items()}


def load_config(file: Path | None, given: Mapping[str, Any]) -> RunConfig:
    """The configuration of a file (TOML, or the manifest of a run) with the command line's options over it.

    Args:
        file: ``None`` for none.
        given: only what the user gave on the command line, by field name.

    Raises:
        UsageError: the file cannot be read, an option does not apply, or a value is wrong; names the key, the value and the reason.
    """
    values = read_file(file)
    source = f"{file}: " if file is not None else ""
    experiment = _chosen("experiment", experiments(), source, values, given)
    runner = _chosen("runner", RUNNERS, source, values, given)
    can = experiments()[experiment].runners
    if runner not in can:
        source = "" if {"experiment", "runner"} & given.keys() else source
        raise UsageError(f"{source}the experiment {experiment} needs --runner {' or '.join(can)} (the runner is {runner})")
    kind = compose(experiment, runner)
    unasked = _defaults_in(values) if file is not None and file.suffix == ".json" else set()
    values = {name: value for name, value in values.items() if name in kind.model_fields or name not in unasked}
    for name in sorted({**values, **given}):
        if name not in kind.model_fields and name in all_fields():
            others = [item.name for item in experiments().values() if name in item.options.model_fields]
            able = [item for item, entry in RUNNERS.items() if name in entry.options.model_fields]
            why = f"the experiment is {experiment}" if others else f"the runner is {runner}"
            where = " or ".join([f"`{COMMAND} {item}`" for item in others] or [f"`--runner {item}`" for item in able])
            raise UsageError(f"{'' if name in given else source}{flag(name)} does not apply: {why} (it applies to {where})")
    return load(kind, COMMAND, file, values, given, unasked - given.keys())


def check_name(label: str, name: object, there_are: Collection[str]) -> None:
    """Refuse a name that is none of an experiment, or of a runner.

    Raises:
        UsageError: says which there are.
    """
    if name not in list(there_are):  # it may be anything that TOML has
        *others, last = map(repr, there_are)
        raise UsageError(f"{label}: Input should be {', '.join(others)} or {last} (got {name!r})")


def _chosen(option: str, there_are: Collection[str], source: str, values: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The experiment or the runner that is asked for."""
    name = given.get(option, values.get(option, RunConfig.model_fields[option].default))
    check_name(flag(option) if option in given else f"{source}{option}", name, there_are)
    return str(name)


def _defaults_in(values: Mapping[str, Any]) -> set[str]:
    """Names of a manifest's values that are the defaults: a manifest holds every option that applied, asked for or not."""
    defaults = {name: to_jsonable_python(field.default) for name, field in all_fields().items()} | {"repeats": RunConfig.auto_repeats}
    return {name for name, value in values.items() if name in defaults and defaults[name] == value}
