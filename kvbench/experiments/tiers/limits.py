"""What a run that reads documents again does not show."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.run_info import RunInfo

READ_ALL = frozenset({"sequential", "repeat", "reverse", "shuffle"})
"""Passes that read every document once."""


def limits(info: RunInfo) -> Iterator[str]:
    """Phrases that continue "This run does not show"."""
    yield from _documents(info)
    yield from _again(info)


def _documents(info: RunInfo) -> Iterator[str]:
    """Made documents are alike, and share what was asked for."""
    if info.own_documents or not info.document_tokens or len(info.document_tokens) < 2 or "overlap" not in info.config:
        return
    overlap = float(info.config["overlap"])
    shared = "share nothing" if overlap == 0 else f"share the same first {overlap * 100:g} %"
    options = "--overlap, --documents" if overlap == 0 else "--documents"
    yield f"documents that differ in length or overlap in part: all have {info.document_tokens[0]:,} tokens and {shared} ({options})"


def _again(info: RunInfo) -> Iterator[str]:
    """Later passes that read everything again; with the same question, if they do."""
    later = tuple(info.config.get("passes") or ())[1:]
    if not later or not READ_ALL.issuperset(later) or info.reuse < 1:
        return
    same = info.config.get("question") == "same"
    rare, options = "documents that are seldom read again", "--passes" if info.own_documents else "--reuse"
    if same:
        yield f"{rare}, or asked something else: every later pass reads all, with the same question ({options}, --question vary)"
    else:
        yield f"{rare}: every later pass reads all ({options})"
