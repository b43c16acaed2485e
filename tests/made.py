"""Made runs: run folders with chosen times and tokens, written through the same code as real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvbench.runs.records import PassRecord, PassTotals, RequestError, RequestKey, RequestRecord
from kvbench.runs.run_folder import Run, RunFolder, read_run

BLOCK, CHUNK, QUESTION, OUTPUT, DOCUMENT = 16, 256, 14, 8, 5011
PROMPT = DOCUMENT + QUESTION
NAMES = ("sequential", "repeat", "reverse")


@dataclass(frozen=True)
class Answer:
    """What a made request measures: TTFT in ms, and tokens from the device and the host (the rest is computed)."""

    ttft_ms: float
    device: int | None = 0
    host: int | None = 0
    restore_ms: float | None = None
    compute_ms: float | None = None
    error: RequestError | None = None


Script = Callable[[str, int, int, int, int], Answer]
"""``(arm, repeat, pass_index, position, doc_id)`` to an answer."""


@dataclass
class Made:
    """The setup of a made run; :meth:`write` measures it with a script."""

    arms: Mapping[str, int | None] = field(default_factory=lambda: {"none": None, "cpu": 51200})
    passes: Sequence[str] = NAMES
    docs: int = 10
    document: int = DOCUMENT
    repeats: int = 1
    device_tokens: int = 21520
    config: dict[str, Any] = field(default_factory=dict)
    edit: Callable[[RequestRecord], RequestRecord] = lambda record: record
    edit_pass: Callable[[PassRecord], PassRecord] = lambda record: record
    stop_after: int | None = None

    def manifest(self) -> dict[str, Any]:
        working_set = self.docs * self.document
        tier = any(size is not None for size in self.arms.values())
        config = {
            "experiment": "cyclic", "runner": "engine", "tier": list(self.arms), "repeats": self.repeats,
            "concurrency": 1, "seed": 0, "docs": self.docs, "doc_tokens": self.document,
            "question_tokens": QUESTION, "output_tokens": OUTPUT,
            "passes": list(self.passes), "question": "same", "overlap": 0.0, "reuse": 1.0,
        }  # fmt: skip
        return {
            "kvbench": "0.1.0",
            "created": "2026-11-29T20:49:13+00:00",
            "command": ["kvbench", "run"],
            "config": {**config, **self.config},
            "seeds": {"workload": 0, "weights": 0},
            "nonce": None,
            "arms": [{"name": name, "command": None} for name in self.arms],
            "profile": "engine",
            "model": {"name": "tiny", "vocab": 2048, "bytes_per_token": 8192},
            "capacity": {
                "device_tokens": self.device_tokens,
                "block_size": BLOCK,
                "host_tokens": dict(self.arms),
                "chunk_tokens": CHUNK if tier else None,
            },
            "workload": {
                "documents": self.docs,
                "document_tokens": [self.document] * self.docs,
                "document_names": None,
                "question_tokens": QUESTION,
                "working_set_tokens": working_set,
                "requests_per_pass": self.docs,
            },
            "working_set_ratio": working_set / self.device_tokens,
            "environment": {"cpu": "made", "cores": 2, "memory_gib": 8.0, "os": "made", "python": "3", "device": "cpu"}
            | {"packages": {}, "commit": None},
        }

    def write(self, path: Path, script: Script, status: str = "complete", reasons: Iterable[str] = ()) -> Run:
        """Write the run folder and read it back."""
        written, clock = 0, 0.0
        with RunFolder(path, self.manifest()) as folder:
            for repeat in range(self.repeats):
                for arm in self.arms:
                    counters = {"requests": 0, "computed_tokens": 0}
                    for index, name in enumerate(self.passes):
                        before, start, failed, records = dict(counters), clock, 0, []
                        for position, doc in enumerate(reversed(range(self.docs)) if name == "reverse" else range(self.docs)):
                            if written == self.stop_after:
                                folder.finish("interrupted" if status == "complete" else status, reasons)
                                return read_run(path)
                            key = RequestKey(arm, repeat, name, index, position, f"{arm}-r{repeat}-p{index}-{position}", doc)
                            record = self.edit(make_record(key, script(arm, repeat, index, position, doc), clock, self.document))
                            folder.append_request(record)
                            records.append(record)
                            written, clock, failed = written + 1, record.end_s, failed + (record.error is not None)
                            counters["requests"] += 1
                            counters["computed_tokens"] += record.computed_tokens or 0
                        totals = PassTotals(before, dict(counters), None, None, None, None)
                        record_of_pass = PassRecord(arm, repeat, name, index, self.docs, failed, wall_s(records, clock - start), totals)
                        folder.append_pass(self.edit_pass(record_of_pass))
            folder.finish(status, reasons)
        return read_run(path)


def wall_s(records: Sequence[RequestRecord], at_least: float) -> float:
    """First send to last end of a pass, whatever the edits made of its times."""
    sent = [record.scheduled_s if record.sent_s is None else record.sent_s for record in records]
    return max(at_least, max(record.end_s for record in records) - min(sent))


def make_record(key: RequestKey, answer: Answer, sent: float = 0.0, document: int = DOCUMENT) -> RequestRecord:
    """The record of an answer, sent at ``sent`` seconds; 1 ms for each output token after the first."""
    prompt = document + QUESTION
    known = answer.device is not None and answer.host is not None
    record = RequestRecord(
        key=key,
        prompt_tokens=prompt,
        prompt_tokens_sent=prompt,
        output_tokens=OUTPUT,
        cached_tokens_device=answer.device,
        cached_tokens_host=answer.host,
        computed_tokens=prompt - (answer.device or 0) - (answer.host or 0) if known else None,
        attribution="engine" if known else None,
        restore_ms=answer.restore_ms,
        compute_ms=answer.compute_ms,
        scheduled_s=sent,
        sent_s=sent,
        first_token_s=sent + answer.ttft_ms / 1e3,
        last_token_s=sent + answer.ttft_ms / 1e3 + (OUTPUT - 1) / 1e3,
        end_s=sent + answer.ttft_ms / 1e3 + (OUTPUT - 1) / 1e3,
        token_times_s=[sent + answer.ttft_ms / 1e3 + step / 1e3 for step in range(OUTPUT)],
        chunk_tokens=[1] * OUTPUT,
        preemptions=0,
    )
    if answer.error is None:
        return record
    return replace(record, first_token_s=None, last_token_s=None, token_times_s=[], chunk_tokens=[], output_tokens=0, error=answer.error)


LAST_DEVICE = {9: 5024, 8: 5024, 7: 5024, 6: 5024, 5: 1408}
"""Device tokens of the reverse pass on the default pool: the design's known values."""


def cyclic(arm: str, repeat: int, pass_index: int, position: int, doc: int) -> Answer:
    """The default run, tokens exactly as the design knows them, times of its table's shape and the same for ever."""
    device = LAST_DEVICE.get(doc, 0) if pass_index == 2 else 0
    host = 4864 - device if arm == "cpu" and pass_index > 0 and device < 4864 else 0
    computed = PROMPT - device - host
    jitter = 1 + ((doc * 7 + repeat * 3 + pass_index * 5) % 11 - 5) / 500
    compute_ms = computed * 0.085 * jitter
    restore_ms = host / 1500 if host else None
    first_read = 1.022 if arm == "cpu" and pass_index == 0 else 1.0
    return Answer((compute_ms + (restore_ms or 0) + 4) * first_read, device, host, restore_ms, compute_ms)
