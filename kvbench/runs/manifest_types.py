"""The manifest of a run as types, with what each field means."""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from kvbench.runs.lines import PredictionRates
from kvbench.runs.quantities import Amount, Count

Status = Literal["running", "complete", "invalid", "interrupted"]


@with_config(use_attribute_docstrings=True)
class ServerCommand(TypedDict):
    """How a server was started; secrets are masked."""

    command: list[str]
    """Its command line."""
    environment: dict[str, str]
    """Environment variables that were set for it."""
    inherited: dict[str, str]
    """Environment variables of kvbench that may matter to it."""
    log: str
    """File name of its log, in the run folder."""


@with_config(use_attribute_docstrings=True)
class Seeds(TypedDict):
    """Seeds of what was drawn."""

    workload: int
    """Of documents, lengths and orders."""
    weights: int | None
    """Of random weights; null where a server has its own."""


@with_config(use_attribute_docstrings=True)
class Fit(TypedDict):
    """The run that rates were fitted to."""

    run: str
    """Its folder."""
    model: str | None
    """Its model."""
    status: str | None
    """Its status."""
    requests: Count
    """Requests that were fitted to."""
    median_error: Amount
    """Median relative error of a predicted TTFT; 0.1 is 10 %."""
    worst_error: Amount
    """Largest of these errors."""


class SimulatedRates(PredictionRates):
    """Rates of a simulated run."""

    fit: NotRequired[Fit | None]


@with_config(use_attribute_docstrings=True)
class Floors(TypedDict):
    """What the machine itself needs, measured for a run with a history."""

    matrix_flops_per_s: Amount
    """Rate of matrix products of the model's shapes."""
    copy_bytes_per_s: Amount
    """Rate of copies between device and host."""
    matrix_parameters: Count
    """Weights that a token is multiplied with."""
    heads: Count
    """Query heads."""


@with_config(use_attribute_docstrings=True)
class ManifestModel(TypedDict):
    """The model; what a server does not tell is missing or null."""

    name: str
    """As it was given, or as the server calls it."""
    vocab: Count
    """Token ids are below this."""
    bytes_per_token: Count | None
    """Bytes of KV a token takes."""
    architecture: NotRequired[str | None]
    """Class of the model."""
    parameters: NotRequired[Count]
    """Number of weights."""
    layers: NotRequired[Count]
    """Layers."""
    kv_heads: NotRequired[Count]
    """KV heads of a layer."""
    head_dim: NotRequired[Count]
    """Size of a head."""
    dtype: NotRequired[str | None]
    """Type of the weights."""
    kv: NotRequired[str | None]
    """How bytes_per_token is counted."""


@with_config(use_attribute_docstrings=True)
class Capacity(TypedDict):
    """Sizes of the caches, in tokens."""

    device_tokens: Count
    """Of the device pool, in whole blocks."""
    block_size: Count
    """Of a block."""
    host_tokens: dict[str, Count | None]
    """Of each arm's host tier; null where it has none, or its size is unknown."""
    chunk_tokens: Count | None
    """Of a chunk of the tier; null where no arm has one."""


@with_config(use_attribute_docstrings=True)
class WorkloadFacts(TypedDict):
    """What was asked for; which fields there are follows from the experiment."""

    requests_per_pass: Count
    """Requests of a pass."""
    working_set_tokens: Count
    """Distinct tokens that are read, or that all requests need."""
    documents: NotRequired[Count]
    """Documents that are read."""
    document_tokens: NotRequired[list[Count]]
    """Length of each."""
    document_names: NotRequired[list[str] | None]
    """Their files; null where they are synthetic."""
    question_tokens: NotRequired[Count]
    """Length of the question behind a document."""
    passes: NotRequired[list[str]]
    """Names of the passes."""
    prompt_tokens: NotRequired[Count | list[Count] | list[list[Count]]]
    """Of each request, of each pass's requests, or (trace) in sum."""
    output_tokens: NotRequired[Count | list[Count] | list[list[Count]]]
    """The same of answers."""
    prompt_lengths: NotRequired[str]
    """The distribution, as it was given."""
    output_lengths: NotRequired[str]
    """The same of answers."""
    answers: NotRequired[list[Count]]
    """Answers (lines of requests.jsonl) of each pass, where requests have several."""
    cut_requests: NotRequired[Count]
    """Requests that were shortened to fit."""
    trace: NotRequired[str]
    """Name of the trace's file."""
    left_out: NotRequired[Count]
    """Requests of the trace that were left out."""
    span_s: NotRequired[Amount | None]
    """Seconds that the trace's times span; null where it is not replayed at its times."""


@with_config(use_attribute_docstrings=True)
class Environment(TypedDict):
    """The machine, and what runs on it."""

    cpu: str
    """Its name."""
    cores: Count
    """Cores that the process may use."""
    memory_gib: Amount
    """Memory of the machine."""
    os: str
    """Operating system."""
    python: str
    """Version of Python."""
    packages: dict[str, str | None]
    """Versions of packages; null: not installed."""
    commit: str | None
    """Commit of kvbench, where it runs from a checkout."""
    device: str | None
    """What the model runs on, cpu or cuda; null where a server does not tell, or nothing was run."""
    threads: NotRequired[Count]
    """Threads that compute."""
    decode_attention: NotRequired[str | None]
    """Attention of decode steps, where it is not the plain one."""
    omp_wait: NotRequired[str | None]
    """How waiting threads wait, as the environment sets it."""
    gpu: NotRequired[str | None]
    """Name of the GPU."""
    driver: NotRequired[str | None]
    """Version of CUDA."""
    link: NotRequired[str | None]
    """The simulated link between device and host."""
    server_packages: NotRequired[dict[str, str | None]]
    """Versions of what serves."""


@with_config(use_attribute_docstrings=True)
class ManifestArm(TypedDict):
    """An arm: its name, its servers, and what differs from a plain arm. Sizes are in tokens."""

    name: str
    """Its name."""
    command: dict[str, ServerCommand] | None
    """How its servers were started, by server (vllm, lmcache); null: kvbench started none."""
    url: NotRequired[str]
    """Address of its server, which ran already."""
    cache_salt: NotRequired[str | None]
    """Salt of its server's prefix cache."""
    tier: NotRequired[str]
    """What stands beside the device pool."""
    host_tokens: NotRequired[Count | None]
    """Size of the tier."""
    device_tokens: NotRequired[Count | None]
    """Size of its device pool."""
    block_size: NotRequired[Count | None]
    """Tokens of a block."""
    swap_tokens: NotRequired[Count | None]
    """Size of the swap space that preempted requests are swapped to."""
    allocation: NotRequired[str]
    """Policy by which requests get blocks."""
    victim: NotRequired[str]
    """Policy by which a request is preempted."""
    reserve_tokens: NotRequired[Count | None]
    """Tokens reserved for every request."""
    device_policy: NotRequired[str | None]
    """Eviction policy of the device pool."""
    host_policy: NotRequired[str | None]
    """Eviction policy of the tier."""
    contiguous: NotRequired[bool]
    """Whether the slots of a request are one run."""
    copy_on_write: NotRequired[bool]
    """Whether samples share blocks until one of them writes."""
    prefix_cache: NotRequired[bool]
    """Whether blocks are found by later requests."""
    sample_usage: NotRequired[bool]
    """Whether each step writes an event usage."""


class ReportedOptions(TypedDict):
    """The options that reports read, as JSON holds them; what all may be is said by the configuration (``kvbench schema manifest``)."""

    experiment: str
    runner: str
    model: NotRequired[str | None]
    repeats: NotRequired[Count]
    concurrency: NotRequired[Count | None]
    rate: NotRequired[Amount | None]
    arrivals: NotRequired[str | None]
    slo: NotRequired[str | None]
    url: NotRequired[list[str] | None]
    link_gbps: NotRequired[Amount | None]
    passes: NotRequired[list[str]]
    documents: NotRequired[str | None]
    question: NotRequired[str]
    overlap: NotRequired[Amount]
    reuse: NotRequired[Amount]
    controls: NotRequired[bool]
    speedup: NotRequired[Amount]
    lengths: NotRequired[str | None]
    max_length: NotRequired[Count]
    requests: NotRequired[Count]
    prompt_tokens: NotRequired[Count | str]
    output_tokens: NotRequired[Count | str]
    context: NotRequired[Count | None]
    n: NotRequired[Count]
    beams: NotRequired[Count]


@with_config(use_attribute_docstrings=True)
class Manifest(TypedDict):
    """What was run, on what, and how it ended. What the model and the machine tell is missing while the model is loaded."""

    format: Literal["kvbench.run/1"]
    """Name and version of the format."""
    kvbench: str
    """Version of kvbench."""
    created: str
    """When the run began, ISO 8601, UTC."""
    command: list[str]
    """The command line, secrets masked."""
    config: ReportedOptions
    """Every option that applies, by name with underscores; `kvbench run --config manifest.json` reads them."""
    status: Status
    """How the run ended; invalid: its figures cannot be trusted."""
    reasons: list[str]
    """Why it is invalid or was interrupted."""
    seeds: NotRequired[Seeds]
    """The seeds."""
    nonce: NotRequired[str | None]
    """What made prompts new to a server that ran already."""
    arms: NotRequired[list[ManifestArm]]
    """The arms, the baseline first."""
    profile: NotRequired[str | None]
    """Rules by which the simulator predicted the run."""
    rates: NotRequired[SimulatedRates | None]
    """Rates of a simulated run."""
    floors: NotRequired[Floors | None]
    """What the machine itself needs, of a run with a history."""
    model: NotRequired[ManifestModel]
    """The model."""
    capacity: NotRequired[Capacity]
    """Sizes of the caches."""
    workload: NotRequired[WorkloadFacts]
    """What was asked for."""
    working_set_ratio: NotRequired[Amount]
    """Working set ÷ device pool."""
    environment: NotRequired[Environment]
    """The machine."""
