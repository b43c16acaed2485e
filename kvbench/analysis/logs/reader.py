"""What a reader of logs is: the file of one tool as requests. A new one is a file in ``formats/``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]
"""A JSON object of the file (a line, an item of its list, or all of it), or a row of CSV by column."""

LOAD = "load."
"""How the name of a field begins that says under which load a request was sent: requests of two loads are never pooled."""

TTFT_UNITS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
"""Units of a time to first token, and a unit in milliseconds: a column ``ttft_s`` is in seconds."""


@dataclass(frozen=True, slots=True)
class LogReader:
    """One tool's file.

    ``about``: tool and file, as help names them. ``fits``: whether the first object of a file is this tool's; no two readers fit one.
    ``rows``: the requests of all objects, one a row, raising ``ValueError`` with what is wrong. A row has ``ttft_UNIT`` (a time of 0 or
    ``None``: no token came), ``error`` (words, or ``None``), tokens as a run's records name them, ``repeat``, and ``load.NAME``. It may
    have ``output_tokens``, ``sent_s``, ``e2el_s`` (sent to last token), ``itls_s`` (a list: the gaps between tokens) and ``duration_s``,
    the time of all requests of its load and repeat. Whatever else it has, ``--map`` can name.
    """

    name: str
    about: str
    fits: Callable[[Object], bool]
    rows: Callable[[Sequence[Object]], Iterator[dict[str, Any]]]


def at(value: object, path: str) -> Any:
    """The value at a dotted path of nested objects; ``None`` where there is none."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def objects_at(value: object, path: str) -> list[Object]:
    """The list of objects at a dotted path; empty where there is none.

    Raises:
        ValueError: something else is there.
    """
    found = at(value, path)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise ValueError(f"{path} is no list of objects")
    return found


def flat(value: Object, prefix: str = "") -> dict[str, Any]:
    """Nested objects as one, by dotted names; an object is there as a whole too."""
    found: dict[str, Any] = {}
    for name, item in value.items():
        found[f"{prefix}{name}"] = item
        if isinstance(item, Mapping):
            found |= flat(item, f"{prefix}{name}.")
    return found


def tokens(prompt: Any, cached: Any) -> dict[str, Any]:
    """Tokens of a request whose server said how many it found in a cache, and not in which: the tiers are known only where it is none."""
    known = all(isinstance(value, int) and not isinstance(value, bool) for value in (prompt, cached))
    tier = 0 if known and cached == 0 else None
    return {
        "prompt_tokens": prompt,
        "cached_tokens_device": tier,
        "cached_tokens_host": tier,
        "computed_tokens": max(prompt - cached, 0) if known else None,
    }


def with_repeats(results: Iterable[Object], load_of: Callable[[Object], dict[str, Any]]) -> Iterator[tuple[Object, dict[str, Any]]]:
    """Each result of a file that holds several, with its load and ``repeat``: how many before it have the same load."""
    seen: Counter[str] = Counter()
    for result in results:
        load = {f"{LOAD}{name}": value for name, value in load_of(result).items()}
        yield result, {**load, "repeat": seen[repr(load)]}
        seen[repr(load)] += 1
