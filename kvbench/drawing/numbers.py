"""Numbers as text, in tables and sentences. What is unknown is a dash."""

from __future__ import annotations

from kvbench.drawing.layout import UNKNOWN

NO_INTERVAL = ", with nothing to tell how much of it is noise (--repeats 3)"
"""What stands instead of an interval where there was one repeat."""


def milliseconds(value: float | None) -> str:
    """Milliseconds with three significant digits."""
    if value is None:
        return UNKNOWN
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} ms"


def times(value: float | None) -> str:
    """A factor: one decimal, two below 1, so that 0.98x is not shown as 1.0x."""
    if value is None:
        return UNKNOWN
    return f"{value:.2f}x" if value < 0.995 else f"{value:.1f}x"


def decimal(value: float | None) -> str:
    """A number with one decimal."""
    return UNKNOWN if value is None else f"{value:.1f}"


def grouped_decimal(value: float | None) -> str:
    """One decimal, and separators of thousands."""
    return UNKNOWN if value is None else f"{value:,.1f}"


def per_cent(share: float | None, digits: int = 1) -> str:
    """A share, 0 to 1, in per cent."""
    return UNKNOWN if share is None else f"{share * 100:.{digits}f} %"


def signed_per_cent(share: float | None) -> str:
    """A change as a share, in per cent with its sign."""
    return UNKNOWN if share is None else f"{share * 100 + 0.0:+,.1f} %".replace("-", "−")


def factor(value: float | None) -> str:
    """A factor with two decimals."""
    return UNKNOWN if value is None else f"{value:.2f}x"


def within(interval: tuple[float, float] | None) -> str:
    """A 95 % interval behind its figure; nothing where there is none."""
    return "" if interval is None else f" [95 % {interval[0]:.2f} to {interval[1]:.2f}]"


def numbered(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
