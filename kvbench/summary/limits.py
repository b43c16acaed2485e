"""What a run does not show, from its own manifest and records; each limit only where it holds.

A limit is a phrase that continues "This run does not show", the reason behind a colon, and the option that would show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from kvbench.analysis.latency import timed
from kvbench.analysis.request_table import pass_labels
from kvbench.analysis.run_info import Setup
from kvbench.analysis.statistics import P90_NEEDS, P99_NEEDS
from kvbench.models.shapes import SHAPES
from kvbench.runs.run_folder import Run

READ_ALL = frozenset({"sequential", "repeat", "reverse", "shuffle"})
"""Passes that read every document once."""

SMALL_MODEL = 3e9
"""Parameters below which a model is smaller than those that need a tier most."""

SHORT_ANSWER = 32
"""Tokens up to which an answer is over before decoding weighs anything."""


def limits(run: Run, frame: pd.DataFrame, setup: Setup) -> tuple[str, ...]:
    """The limits of a run, in words; ``frame`` is :func:`kvbench.analysis.request_table.request_frame`.

    A simulated run measured nothing, which its notes say; only the limits of its workload are left to say here.
    """
    if frame.empty:
        return ()
    measured = () if setup.simulated else (*_certainty(frame, setup), *_unfinished(run, setup), *_load(setup), *_preemption(frame, setup))
    of_machine = () if setup.simulated else (*_answers(setup), *_restore(setup), *_model(run, setup), *_machine(run, setup))
    return (
        *measured,
        *_documents(setup),
        *_again(setup),
        *_pace(setup),
        *_fragmentation(setup),
        *_sharing(setup),
        *of_machine,
        *_unknown(frame),
    )


def _certainty(frame: pd.DataFrame, setup: Setup) -> Iterator[str]:
    """Too few repeats for an interval, too few requests for a tail."""
    known = timed(frame)
    if known.empty:
        return
    if known["repeat"].nunique() == 1:
        yield f"whether it comes out the same again: one repeat gives no interval{'' if setup.of_log else ' (--repeats 3)'}"
    fewest = int(known.groupby(["arm", "pass_index"]).size().min())
    if fewest < P99_NEEDS:
        tail, needs = ("p90", P90_NEEDS) if fewest < P90_NEEDS else ("p99", P99_NEEDS)
        yield f"the slowest requests: a {tail} needs {needs} of an arm and pass, and there {'is' if fewest == 1 else 'are'} {fewest:,}"


def _unfinished(run: Run, setup: Setup) -> Iterator[str]:
    """Passes that were begun or asked for and that no repeat finished."""
    names = setup.config.get("passes")
    if names is None or setup.replay is not None:
        return
    labels = pass_labels({"pass_index": index, "pass": name} for index, name in enumerate(names))
    finished = {(line["arm"], line["pass_index"]) for line in run.passes}
    missing = [f"{arm} {label}" for arm in setup.arms for index, label in labels.items() if (arm, index) not in finished]
    if missing:
        yield f"{', '.join(missing)}: not finished"


def _load(setup: Setup) -> Iterator[str]:
    """How requests were sent leaves out another way of sending them."""
    if not setup.tiered and not setup.open_loop and setup.concurrency is None:
        option = " (--rate)" if setup.config.get("experiment") == "pressure" and "context" not in setup.config else ""
        yield f"requests that come one after the other: all were there at the start{option}"
    elif setup.open_loop:
        if (rate := setup.config.get("rate")) is not None:
            yield f"another load: {rate:g} requests a second (--rate)"
    elif setup.concurrency == 1:
        yield "load: requests ran one at a time (--concurrency, --rate)"
    elif setup.concurrency is not None:
        yield f"arrivals that wait for nobody: {setup.concurrency} requests in flight, each sent when another had ended (--rate)"


def _preemption(frame: pd.DataFrame, setup: Setup) -> Iterator[str]:
    """Requests that ran together, and none gave way; alone, no request can."""
    preemptions = frame["preemptions"]
    if setup.concurrency != 1 and not preemptions.isna().any() and not preemptions.any():
        yield "KV that runs out while answers grow: no request was preempted (a smaller --kv-tokens)"


def _documents(setup: Setup) -> Iterator[str]:
    """Made documents are alike, and share what was asked for."""
    if setup.own_documents or not setup.document_tokens or len(setup.document_tokens) < 2 or "overlap" not in setup.config:
        return
    overlap = float(setup.config["overlap"])
    shared = "share nothing" if overlap == 0 else f"share the same first {overlap * 100:g} %"
    options = "--overlap, --documents" if overlap == 0 else "--documents"
    yield f"documents that differ in length or overlap in part: all have {setup.document_tokens[0]:,} tokens and {shared} ({options})"


def _again(setup: Setup) -> Iterator[str]:
    """Later passes that read everything again; with the same question, if they do."""
    later = tuple(setup.config.get("passes") or ())[1:]
    if not later or not READ_ALL.issuperset(later) or setup.reuse < 1 or setup.replay is not None:
        return
    same = setup.config.get("question") == "same"
    rare, options = "documents that are seldom read again", "--passes" if setup.own_documents else "--reuse"
    if same:
        yield f"{rare}, or asked something else: every later pass reads all, with the same question ({options}, --question vary)"
    else:
        yield f"{rare}: every later pass reads all ({options})"


def _pace(setup: Setup) -> Iterator[str]:
    """A trace that was not replayed at its own pace."""
    if setup.replay is None:
        return
    if setup.replay.span_s is None or setup.config.get("rate") is not None:
        yield "the trace at its own times: its requests were sent as --concurrency or --rate asked"
    elif (speedup := float(setup.config.get("speedup", 1))) != 1:
        yield f"the trace at its own pace: it was replayed {speedup:g} times as fast (--speedup)"


def _fragmentation(setup: Setup) -> Iterator[str]:
    """Lengths that are nobody's."""
    if setup.config.get("experiment") == "fragmentation" and setup.config.get("lengths") is None:
        yield "requests of your own lengths: these were drawn (--lengths FILE)"


def _sharing(setup: Setup) -> Iterator[str]:
    """How answers share a prompt elsewhere."""
    if setup.config.get("experiment") == "sharing":
        yield (
            "a server's way of sharing: vLLM 0.32 makes a request of each sample, which share what its prefix cache finds "
            "(vllm/v1/engine/parallel_sampling.py), and searches beams outside its engine, a request of one token for each beam and step "
            "(vllm/entrypoints/generate/beam_search)"
        )


def _answers(setup: Setup) -> Iterator[str]:
    tokens = setup.output_tokens
    if tokens is not None and tokens <= SHORT_ANSWER:
        yield f"long answers: each has {_counted(tokens, 'token')} (--output-tokens)"


def _restore(setup: Setup) -> Iterator[str]:
    if setup.link is not None:
        yield (
            f"a real link: copies between device and host take at least as long as over a {setup.link}, and of a link only its rate is "
            "modelled (--link-gbps)"
        )
        return
    if setup.device == "cpu" and any(setup.has_tier(arm) for arm in setup.arms):
        yield "a restore over PCIe: device pool and host tier are both RAM here, and a restore is a memory copy"
    if setup.device == "cpu" and "swap" in setup.arms:
        yield "a swap over PCIe: device pool and swap space are both RAM here, and a swap is a memory copy"


def _model(run: Run, setup: Setup) -> Iterator[str]:
    """A small model, or one whose weights are random."""
    model: dict[str, Any] = run.manifest.get("model") or {}
    name, parameters = model.get("name"), model.get("parameters")
    random = name in SHAPES
    if parameters is not None and parameters < SMALL_MODEL:
        yield f"a model of the size that is served: {name} has {_millions(parameters)} {'random ' if random else ''}weights (--model)"
    elif random:
        yield f"answers that mean anything: the weights of {name} are random (--model)"


def _machine(run: Run, setup: Setup) -> Iterator[str]:
    environment: dict[str, Any] = run.manifest.get("environment") or {}
    if setup.config.get("url"):
        yield "what the servers ran on: of their machine nothing is known, only the client's is recorded"
    elif (cpu := environment.get("cpu")) is not None:
        cores = environment.get("cores")
        where = environment.get("gpu") or (cpu if cores is None else f"{cpu}, {_counted(cores, 'core')}")
        yield f"another machine: it ran on one ({where})"
    else:
        yield "what it ran on: the machine is not recorded"


def _unknown(frame: pd.DataFrame) -> Iterator[str]:
    answered = frame[~frame["failed"]]
    unknown = int(answered[["device", "host", "computed"]].isna().any(axis=1).sum())
    if unknown:
        yield f"where each prompt token came from: unknown for {unknown:,} of {_counted(len(answered), 'request')}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _millions(parameters: float) -> str:
    return f"{parameters / 1e9:.1f} billion" if parameters >= 1e9 else f"{parameters / 1e6:,.1f} million"
