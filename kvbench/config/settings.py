"""What every configuration is: options as fields, each with its unit, its limits and where it applies; read from the command line, a
TOML file or a manifest.

The command line is generated from the fields (:mod:`kvbench.cli.options`), so an option exists in one place only.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

from kvbench.errors import UsageError
from kvbench.workloads.lengths import parse_lengths

Auto = Literal["auto"]
PoolTokens = Annotated[int, Field(ge=1, le=10**10)]
BlockTokens = Annotated[int, Field(ge=1, le=4096)]
Gibibytes = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(frozen=True, slots=True)
class Setting:
    """How a field is shown in help, and on which runners it applies (``None``: on every one).

    ``metavar`` stands for the value in help, where the field's type does not say it well. ``basic``: the short help shows it.
    """

    panel: str
    unit: str = ""
    metavar: str = ""
    runners: frozenset[str] | None = None
    basic: bool = False


def setting_of(field: FieldInfo) -> Setting:
    """The setting of a field of a configuration."""
    return next(item for item in field.metadata if isinstance(item, Setting))


class Settings(BaseModel):
    """A configuration, fully said. Values are checked here; what only a model or a machine can tell is checked when it is known.

    Its validator is built when it is first used: help shows the fields of twenty such classes, and a run validates with one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def settings(cls) -> dict[str, Setting]:
        """Each field's :class:`Setting`, by field name, in the order in which the fields stand."""
        return {name: setting_of(field) for name, field in cls.model_fields.items()}

    @model_validator(mode="before")
    @classmethod
    def _values_are_of_their_kind(cls, values: Any) -> Any:
        """``docs = true`` would pass for 1, and an empty name of a file or folder would be the current directory."""
        for name, value in values.items() if isinstance(values, dict) else ():
            annotation = cls.model_fields[name].annotation if name in cls.model_fields else bool
            if isinstance(value, bool) and annotation is not bool:
                raise ValueError(f"{flag(name)}: a number or a name is expected, not {str(value).lower()}")
            if value == "" and "Path" in str(annotation):
                raise ValueError(f"{flag(name)}: the name is empty")
        return values

    @model_validator(mode="after")
    def _options_apply(self, info: ValidationInfo) -> Self:
        """An option that does not apply is a usage error: ignored, it would be believed. The context names those that nobody asked for."""
        reasons = self.not_applicable()
        for name in sorted((self.model_fields_set & set(reasons)) - set(info.context or ())):
            raise ValueError(f"{flag(name)} does not apply: {reasons[name]}")
        return self

    def not_applicable(self) -> dict[str, str]:
        """Fields that mean nothing here, with the reason; giving one is a usage error, and the manifest leaves them out."""
        return {}

    def resolved(self) -> dict[str, Any]:
        """What the manifest keeps: every field that applies, defaults filled in. ``--config`` reads it back."""
        left_out = set(self.not_applicable())
        return {name: value for name, value in self.model_dump(mode="json", exclude_none=True).items() if name not in left_out}


Kind = TypeVar("Kind", bound=Settings)


def flag(name: str) -> str:
    """The command-line spelling of a field: ``doc_tokens`` is ``--doc-tokens``; the experiment is a plain word."""
    return "EXPERIMENT" if name == "experiment" else "--" + name.replace("_", "-")


def split_names(value: object) -> object:
    """``"a,b"`` and ``["a,b", "c"]`` both mean a list of names."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        return value
    return [name for part in parts for name in ([word.strip() for word in part.split(",")] if isinstance(part, str) else [part])]


def each_once(noun: str) -> AfterValidator:
    """The check that a list of such names has none twice."""

    def check(value: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(value)) != len(value):
            raise ValueError(f"each {noun} may be named once")
        return value

    return AfterValidator(check)


def given_or(value: int | Auto, default: int) -> int:
    """The value, or what ``auto`` means where nothing else tells."""
    return default if value == "auto" else value


def _read_lengths(value: object) -> object:
    """A number stays one; ``"256"`` becomes one; a distribution is checked and stays as it was said."""
    if not isinstance(value, (int, str)) or value == "auto":
        return value
    lengths = parse_lengths(str(value))
    return value if lengths.fixed is None else lengths.fixed


LengthSpec = Annotated[int | str, BeforeValidator(_read_lengths)]
"""A length, a distribution of lengths (:mod:`kvbench.workloads.lengths`), or ``auto``."""


def load(
    kind: type[Kind],
    command: str,
    file: Path | None,
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    unasked: Collection[str] = (),
) -> Kind:
    """The configuration of a file's values with the command line's options over them.

    Args:
        command: whose options these are, for messages: ``kvbench run``.
        file: where the values come from; ``None`` for none.
        given: only what the user gave on the command line, by field name.
        unasked: names that the file holds although nobody asked for them: it is no error if they do not apply.

    Raises:
        UsageError: a value is wrong; names the key, the value and the reason, and the file where it stands there.
    """
    try:
        return kind.model_validate({**values, **given}, context=unasked)
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].removeprefix("Value error, ")
        if len(first["loc"]) > 1 and any(other["type"] == "literal_error" for other in error.errors()[1:]):
            reason += ", or 'auto'"
        if not first["loc"]:
            told = {word[2:].replace("-", "_") for word in re.findall(r"--[a-z-]+", reason)}
            in_file = bool(told & (values.keys() - given.keys())) or not told & given.keys()
            raise UsageError(f"{file}: {reason}" if file is not None and in_file else reason) from None
        name = str(first["loc"][0])
        source = f"{file}: " if name in values and name not in given else ""
        if isinstance(first["input"], str) and first["type"] in ("int_parsing", "float_parsing", "value_error"):
            reason = _plain_number(first["input"], setting_of(kind.model_fields[name]).unit) or reason
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{source}{name}: there is no such key; `{command} --help` lists the options") from None
        raise UsageError(f"{source}{name if source else flag(name)}: {reason} (got {first['input']!r})") from None


def _plain_number(given: str, unit: str) -> str | None:
    """What to write instead of a number with a unit, as ``4k`` or ``2GB``; ``None``: it is something else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|m|g|t)?(i?b|i)?\s*(tokens?)?", given.strip().lower())
    if found is None or not any(found.groups()[1:]):
        return None
    number, scale, size, _ = found.groups()
    steps = " kmgt".index(scale or " ")
    plain = None
    if unit == "GiB":
        plain = float(number) * 1024.0 ** (steps - 3)
    elif size in (None, "i") and unit not in ("s", "ms"):  # 5m are minutes
        plain = float(number) * (1000.0 if size is None else 1024.0) ** steps
    return f"a plain number{f' of {unit}' if unit else ''} is expected{'' if plain is None else f', as {plain:.15g}'}"


def read_file(file: Path | None) -> dict[str, Any]:
    """The options that a TOML file or a run's manifest holds, by field name. TOML keys may be spelled with ``-`` or ``_``.

    Args:
        file: ``None`` for none, which holds nothing.

    Raises:
        UsageError: it cannot be read.
    """
    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {file}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        if file.suffix != ".json":
            return _underscored(tomllib.loads(text))
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--config {file}: {error}") from None
    values = manifest.get("config") if isinstance(manifest, dict) else None
    if not isinstance(values, dict):
        raise UsageError(f"--config {file}: not a run's manifest (it has no object config)")
    return values


def _underscored(values: dict[str, Any]) -> dict[str, Any]:
    """The same keys as field names; one that is there in both spellings is an error, as either might be meant."""
    named = {key.replace("-", "_"): value for key, value in values.items()}
    if len(named) < len(values):
        twice = next(key for key in values if "-" in key and key.replace("-", "_") in values)
        raise ValueError(f"{twice} is given twice, with - and with _")
    return named
