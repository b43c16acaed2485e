"""One line of a trace, and how its faults are said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.errors import UsageError

MOST_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One line of the file as an object, and how its faults are said."""

    file: Path
    number: int
    values: dict[str, Any]

    def fault(self, what: str) -> UsageError:
        """The error for a fault of this line."""
        return UsageError(f"--trace {self.file}: line {self.number}: {what}")

    def integer(self, name: str, least: int) -> int:
        """A count of tokens."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_TOKENS:
            raise self.fault(f"{name} is a whole number from {least} to {MOST_TOKENS:,}, not {shown(value)}")
        return value

    def integers(self, name: str, end: int) -> list[int]:
        """A list of ids below ``end``."""
        values = self.values.get(name)
        if not isinstance(values, list):
            raise self.fault(f"{name} is a list of whole numbers, not {shown(values)}")
        wrong = next((value for value in values if type(value) is not int or not 0 <= value < end), None)
        if wrong is not None:
            raise self.fault(f"{name} are whole numbers from 0 to {end - 1:,}, not {shown(wrong)}")
        return values


def shown(value: object) -> str:
    """A wrong value, short enough for one line; a field that is not there is null."""
    text = json.dumps(value)
    return "missing" if value is None else text if len(text) <= 40 else f"{text[:37]}..."
