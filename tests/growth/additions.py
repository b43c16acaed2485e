"""What the growth test adds to kvbench, each in the one way that there is: an experiment, a metric, an eviction policy,
an endpoint and a report format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from kvbench.experiments import registry as experiments
from kvbench.metrics import registry as metrics
from kvbench.reports.formats.format import FORMATS, ReportFormat
from kvbench.runners.base import Request
from kvbench.runners.engine.kv.policies import registry as in_engine
from kvbench.runners.http.endpoints.chunk import read_chunk, read_error
from kvbench.runners.http.endpoints.endpoint import ENDPOINTS
from kvbench.runners.simulator.policies import registry as simulated
from tests.growth.dialogue import SECOND_HITS, DialogueExperiment
from tests.runners.policies import registered as fifo_and_mru


class Signed:
    """Completions as any other, with the name of a user, and no chunks with a count."""

    name, path = "signed", "/v1/completions"
    read, read_error = staticmethod(read_chunk), staticmethod(read_error)

    def encode(self, request: Request, model: str, ids: bool, cache_salt: str | None) -> bytes:
        body = {"user": "growth", "model": model, "prompt": list(request.prompt), "max_tokens": request.output_tokens}
        body |= {"ignore_eos": True, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        return json.dumps(body | {"return_token_ids": ids} | ({} if cache_salt is None else {"cache_salt": cache_salt})).encode()


SAID = ReportFormat(
    name="said",
    about="the sentences alone",
    order=9,
    render=lambda run: "".join(f"{sentence}\n" for sentence in run.summary.sentences),
    render_several=lambda runs: "".join(f"{run.label}: {len(run.summary.sentences if run.summary else ())}\n" for run in runs.side.runs),
)


@contextmanager
def grown() -> Iterator[None]:
    """All of it is there; afterwards nothing of it is."""
    experiments.register(DialogueExperiment())
    metrics.register(SECOND_HITS)
    ENDPOINTS.register(Signed())
    FORMATS.register(SAID)
    try:
        with fifo_and_mru():
            yield
    finally:
        experiments.unregister("dialogue")
        metrics.unregister("second_hits")
        ENDPOINTS.unregister("signed")
        FORMATS.unregister("said")


def names() -> list[list[str]]:
    """What there is, room by room."""
    rooms = (experiments.experiments(), metrics.metrics(), ENDPOINTS.all(), FORMATS.all(), simulated.policies(), in_engine.policies())
    return [list(room) for room in rooms]
