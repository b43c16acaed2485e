"""Latency: which requests have one."""

from __future__ import annotations

import pandas as pd


def timed(frame: pd.DataFrame) -> pd.DataFrame:
    """The requests that have a latency: not failed, and with a first token."""
    return frame[~frame["failed"] & frame["ttft_ms"].notna()]
