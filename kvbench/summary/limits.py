"""What a run does not show, from its own manifest and records; each limit only where it holds.

A limit is a phrase that continues "This run does not show", the reason behind a colon, and the option that would show it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.latency import timed
from kvbench.analysis.request_table import pass_labels
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.statistics import P90_NEEDS, P99_NEEDS
from kvbench.drawing.numbers import numbered
from kvbench.experiments.reading import Reading
from kvbench.experiments.readings import ExperimentView
from kvbench.models.shapes import SHAPES

SMALL_MODEL = 3e9
"""Parameters below which a model is smaller than those that need a tier most."""

SHORT_ANSWER = 32
"""Tokens up to which an answer is over before decoding weighs anything."""


def limits(view: ExperimentView) -> tuple[str, ...]:
    """The limits of a run, in words.

    A simulated run measured nothing, which its notes say; only the limits of its workload are left to say here.
    """
    if not view.requests:
        return ()
    if view.info.simulated:
        return (*view.reading.limits(view), *_unknown(view))
    return (
        *_certainty(view),
        *_unfinished(view),
        *_load(view.info, view.reading),
        *_preemption(view),
        *view.reading.limits(view),
        *_answers(view.info),
        *_restore(view),
        *_model(view.info),
        *_machine(view.info),
        *_unknown(view),
    )


def _certainty(view: ExperimentView) -> Iterator[str]:
    """Too few repeats for an interval, too few requests for a tail."""
    known = timed(view.table)
    if known.empty:
        return
    if known["repeat"].nunique() == 1:
        yield f"whether it comes out the same again: one repeat gives no interval{'' if view.info.of_log else ' (--repeats 3)'}"
    fewest = int(known.groupby(["arm", "pass_index"]).size().min())
    if fewest < P99_NEEDS:
        tail, needs = ("p90", P90_NEEDS) if fewest < P90_NEEDS else ("p99", P99_NEEDS)
        yield f"the slowest requests: a {tail} needs {needs} of an arm and pass, and there {'is' if fewest == 1 else 'are'} {fewest:,}"


def _unfinished(view: ExperimentView) -> Iterator[str]:
    """Passes that were begun or asked for and that no repeat finished."""
    names = view.info.config.get("passes")
    if names is None:
        return
    labels = pass_labels({"pass_index": index, "pass": name} for index, name in enumerate(names))
    finished = {(line["arm"], line["pass_index"]) for line in view.passes}
    missing = [f"{arm} {label}" for arm in view.arms for index, label in labels.items() if (arm, index) not in finished]
    if missing:
        yield f"{', '.join(missing)}: not finished"


def _load(info: RunInfo, reading: Reading) -> Iterator[str]:
    """How requests were sent leaves out another way of sending them."""
    if not reading.judges_tiers and not info.open_loop and info.concurrency is None:
        option = " (--rate)" if reading.takes_rate(info) else ""
        yield f"requests that come one after the other: all were there at the start{option}"
    elif info.open_loop:
        if (rate := info.config.get("rate")) is not None:
            yield f"another load: {rate:g} requests a second (--rate)"
    elif info.concurrency == 1:
        yield "load: requests ran one at a time (--concurrency, --rate)"
    elif info.concurrency is not None:
        yield f"arrivals that wait for nobody: {info.concurrency} requests in flight, each sent when another had ended (--rate)"


def _preemption(view: ExperimentView) -> Iterator[str]:
    """Requests that ran together, and none was preempted; alone, no request can."""
    preemptions = view.table["preemptions"]
    if view.info.concurrency != 1 and not preemptions.isna().any() and not preemptions.any():
        yield "KV that runs out while answers grow: no request was preempted (a smaller --kv-tokens)"


def _answers(info: RunInfo) -> Iterator[str]:
    tokens = info.output_tokens
    if tokens is not None and tokens <= SHORT_ANSWER:
        yield f"long answers: each has {numbered(tokens, 'token')} (--output-tokens)"


def _restore(view: ExperimentView) -> Iterator[str]:
    info = view.info
    if info.link is not None:
        yield (
            f"a real link: copies between device and host take at least as long as over a {info.link}, and of a link only its rate is "
            "modelled (--link-gbps)"
        )
        return
    if info.device == "cpu" and any(view.has_tier(arm) for arm in view.arms):
        yield "a restore over PCIe: device pool and host tier are both RAM here, and a restore is a memory copy"
    if info.device == "cpu" and "swap" in view.arms:
        yield "a swap over PCIe: device pool and swap space are both RAM here, and a swap is a memory copy"


def _model(info: RunInfo) -> Iterator[str]:
    """A small model, or one whose weights are random."""
    name, parameters = info.model.get("name"), info.model.get("parameters")
    random = name in SHAPES
    if parameters is not None and parameters < SMALL_MODEL:
        many = f"{parameters / 1e9:.1f} billion" if parameters >= 1e9 else f"{parameters / 1e6:,.1f} million"
        yield f"a model of the size that is served: {name} has {many} {'random ' if random else ''}weights (--model)"
    elif random:
        yield f"answers that mean anything: the weights of {name} are random (--model)"


def _machine(info: RunInfo) -> Iterator[str]:
    environment = info.environment
    if info.config.get("url"):
        yield "what the servers ran on: of their machine nothing is known, only the client's is recorded"
    elif (cpu := environment.get("cpu")) is not None:
        cores = environment.get("cores")
        where = environment.get("gpu") or (cpu if cores is None else f"{cpu}, {numbered(cores, 'core')}")
        yield f"another machine: it ran on one ({where})"
    else:
        yield "what it ran on: the machine is not recorded"


def _unknown(view: ExperimentView) -> Iterator[str]:
    answered = view.table[~view.table["failed"]]
    unknown = int(answered[["device", "host", "computed"]].isna().any(axis=1).sum())
    if unknown:
        yield f"where each prompt token came from: unknown for {unknown:,} of {numbered(len(answered), 'request')}"
