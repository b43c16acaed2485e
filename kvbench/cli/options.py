"""The options of a command, generated from the fields of its configuration (:mod:`kvbench.config.settings`).

Every option is taken as text, ``None`` where it is not given, and only what was given reaches the configuration, which parses it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from kvbench.config.settings import Setting, flag, setting_of
from kvbench.experiments.registry import experiments
from kvbench.models.shapes import SHAPES
from kvbench.runners.registry import RUNNERS

PANELS = (
    "Workload", "Requests at once", "Model and pool", "Host tier", "Engine", "Simulator", "vLLM server", "Server", "Times", "Run", "Output",
)  # fmt: skip


def with_options(function: Callable[..., None], fields: Mapping[str, FieldInfo]) -> Callable[..., None]:
    """Give ``function(..., **given)`` an argument or option for each of these fields of a configuration, instead of ``given``.

    ``given`` then has what the user gave, by field name.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())
    generated = [_parameter(name, field, setting_of(field)) for name, field in in_panels(fields)]
    parameters = [*(item for item in own[:1] if item.name == "ctx"), *generated]
    parameters += [item for item in own if item.name != "ctx" and item.kind is not item.VAR_KEYWORD]
    ordered = [item.replace(kind=item.KEYWORD_ONLY) for item in parameters]

    def command(**values: Any) -> None:
        function(**{name: value for name, value in values.items() if value is not None or name not in fields})

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    return command


def in_panels(fields: Mapping[str, FieldInfo]) -> list[tuple[str, FieldInfo]]:
    """The fields in the order of help: the experiment, then panel by panel."""
    return sorted(fields.items(), key=lambda item: (item[0] != "experiment", PANELS.index(setting_of(item[1]).panel)))


def help_record(name: str, field: FieldInfo, brief: bool) -> tuple[str, str]:
    """What help says of an option: how it is given, and what it does; ``brief``: in a sentence, with its unit and its default."""
    setting = setting_of(field)
    value = f"/ --no-{flag(name)[2:]}" if field.annotation is bool else setting.metavar or _metavar(field.annotation)
    spelled = f"{flag(name)} {value}"
    if not brief:
        return spelled, _help(field, setting)
    facts = [*([setting.unit] if setting.unit else []), f"default: {_shown(field.default)}"]
    return spelled, f"{sentence(str(field.description))} [{'; '.join(facts)}]"


def sentence(text: str) -> str:
    """The first sentence of a help text, up to what explains it."""
    return re.split(r"\. |; |\.?$", text, maxsplit=1)[0] + "."


def _parameter(name: str, field: FieldInfo, setting: Setting) -> inspect.Parameter:
    help_text = _help(field, setting)
    if name == "experiment":
        argument = typer.Argument(metavar="EXPERIMENT", help=help_text, show_default=False, autocompletion=_completion(_words(name, field)))
        kind: Any = Annotated[str | None, argument]
    elif field.annotation is bool:
        kind = Annotated[bool | None, typer.Option(f"{flag(name)}/--no-{flag(name)[2:]}", help=help_text, rich_help_panel=setting.panel)]
    else:
        text = list[str] if get_origin(field.annotation) is tuple else str
        option = typer.Option(
            flag(name),
            help=help_text,
            metavar=setting.metavar or _metavar(field.annotation),
            rich_help_panel=setting.panel,
            autocompletion=_completion(_words(name, field)),
        )
        kind = Annotated[text | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _words(name: str, field: FieldInfo) -> list[str]:
    """The words that a value may be; none where it may be anything."""
    known: dict[str, Collection[str]] = {"experiment": experiments(), "runner": RUNNERS, "model": SHAPES}
    return list(known.get(name, _choices(field.annotation)))


def _completion(words: list[str]) -> Callable[[str], list[str]] | None:
    """What a shell completes a value with, also the last of several with commas between; ``None``: there are no certain words."""

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        return [f"{before}{comma}{word}" for word in words]

    return complete if words else None


def _help(field: FieldInfo, setting: Setting) -> str:
    """What it does, then what the annotations say: unit, choices, range, default."""
    facts = [setting.unit, "|".join(_choices(field.annotation)), _limits(field), f"default: {_shown(field.default)}"]
    return f"{field.description} [{'; '.join(filter(None, facts))}]"


def _limits(field: FieldInfo) -> str:
    """``1 to 4,096``, or what else there is of limits."""
    alternatives = [info for part in get_args(field.annotation) for info in getattr(part, "__metadata__", ())]  # of a union
    metadata = [*field.metadata, *(item for info in alternatives for item in info.metadata)]
    low = next((_number(item.ge) for item in metadata if isinstance(item, Ge)), None)
    above = next((_number(item.gt) for item in metadata if isinstance(item, Gt)), None)
    high = next((_number(item.le) for item in metadata if isinstance(item, Le)), None)
    if low is not None and high is not None:
        return f"{low} to {high}"
    named = {"at least": low, "above": above, "at most": high}
    return ", ".join(f"{name} {limit}" for name, limit in named.items() if limit is not None)


def _number(value: Any) -> str:
    """A number as text; the largest integer as a power, which nobody reads digit by digit."""
    return "2^63 − 1" if value == 2**63 - 1 else f"{value:,g}" if isinstance(value, float) else f"{value:,}"


def _choices(annotation: Any) -> list[str]:
    """The words of a ``Literal``, alone or inside a tuple; none where other values may be given too."""
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    return _choices(get_args(annotation)[0]) if get_origin(annotation) is tuple else []


def _metavar(annotation: Any) -> str:
    """What stands for the value in help."""
    if get_origin(annotation) is tuple:
        return "NAME,..."
    if _choices(annotation) or annotation is str:
        return "NAME"
    parts = [getattr(item, "__origin__", item) for item in get_args(annotation) or (annotation,)]
    kinds = {item.__name__ for item in parts if isinstance(item, type)}
    return "FOLDER" if "Path" in kinds else "F" if "float" in kinds else "N"


def _shown(default: Any) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        return ",".join(str(item) for item in default)
    return _number(default) if isinstance(default, (int, float)) else str(default)
