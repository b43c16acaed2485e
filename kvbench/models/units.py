"""Whole units (blocks of a pool, chunks of a tier) of an amount."""

from __future__ import annotations


def ceil_div(amount: int, unit: int) -> int:
    """How many units of ``unit`` hold ``amount``: ⌈amount / unit⌉."""
    return -(-amount // unit)
