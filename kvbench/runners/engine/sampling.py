"""Sampling: from a sequence's last logits to its next token."""

from __future__ import annotations

import torch


def greedy(logits: torch.Tensor) -> list[int]:
    """The most likely token of each row of ``[sequences, vocabulary]``; the lowest id among equals."""
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    return tokens
