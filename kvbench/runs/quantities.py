"""The numbers that are written down: never negative, never beyond what a count or a time can be, so that sums of them stay numbers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MOST = 2**53
"""Above it JSON readers take two numbers for one."""

Count = Annotated[int, Field(ge=0, le=MOST)]
"""So many tokens, bytes, requests or steps; a place or an index too."""
Amount = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
"""Seconds, milliseconds, a rate or a ratio."""
