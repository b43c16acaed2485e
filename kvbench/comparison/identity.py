"""What makes two runs comparable: the same workload, model and capacity; what may differ and is said: the machine and the software."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.experiments.composed import all_settings

Facts = dict[str, Any]

_RESOLVED = frozenset({"docs", "doc_tokens", "documents", "model", "dtype", "device", "kv_tokens", "block_size"}) | frozenset(
    {"host_gib", "host_tokens", "chunk_tokens"}
)
"""Options whose effect stands elsewhere in the manifest, as sizes: ``auto`` and the number it means are the same run."""

_STUDIED = frozenset({"Workload", "Requests at once", "Model and pool", "Host tier", "Times", "Run"})
"""Panels of options that say what is measured; the others say how it is executed."""

_FREE = frozenset({"repeats", "controls", "slo"})
"""Options of those panels that change how much is measured, not what."""

_MACHINE = ("cpu", "cores", "memory_gib", "gpu", "device", "threads", "link")
_LONGEST = 200
"""Characters of a value, as JSON, above which a baseline keeps its digest only."""


def subject(manifest: Mapping[str, Any]) -> Facts:
    """What was measured, by field name: workload, model and capacity. Fields differ only if what they describe does."""
    panels = {name: setting.panel for name, setting in all_settings().items()}
    config = {
        name: value
        for name, value in (manifest.get("config") or {}).items()
        if name not in _RESOLVED | _FREE and panels.get(name, "Workload") in _STUDIED
    }
    model = {("model" if name == "name" else f"model.{name}"): value for name, value in (manifest.get("model") or {}).items()}
    config["pace"] = _pace(manifest.get("config") or {})
    facts = {**config, **model, **(manifest.get("capacity") or {}), **(manifest.get("workload") or {})}
    return {name: _short(value) for name, value in facts.items()}


def _pace(config: Mapping[str, Any]) -> str:
    """When requests are sent, in one field: a run has one of these options or another, and one that it lacks would say nothing."""
    if config.get("rate") is not None:
        return f"{config['rate']:g} requests/s, {config.get('arrivals')}"
    concurrency = config.get("concurrency")
    if concurrency is not None:
        return f"{concurrency} in flight"
    return "the trace's own times" if "trace" in config else "all at once"


def machine(manifest: Mapping[str, Any]) -> Facts:
    """The machine, as far as it decides times."""
    environment = manifest.get("environment") or {}
    return {name: environment[name] for name in _MACHINE if name in environment}


def software(manifest: Mapping[str, Any]) -> Facts:
    """Versions and options of execution: what an upgrade changes, so a difference is what is being compared."""
    environment = manifest.get("environment") or {}
    settings = all_settings()
    config = manifest.get("config") or {}
    execution = {name: _short(value) for name, value in config.items() if name in settings and settings[name].panel not in _STUDIED}
    versions = {name: version for name, version in (environment.get("packages") or {}).items() if version is not None}
    named = {name: environment[name] for name in ("driver", "python", "commit") if environment.get(name) is not None}
    return {"kvbench": manifest.get("kvbench"), **execution, **versions, **named}


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Fields both have and that differ: name, base, new. A field that one of them lacks is of another version, and says nothing."""
    for name in base:
        if name in new and base[name] != new[name]:
            yield name, base[name], new[name]


def shown(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {shown(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return ",".join(shown(item) for item in value)
    return "none" if value is None else str(value)


def _short(value: Any) -> Any:
    """The value as JSON keeps it, or its digest where it is long (the length of each of 10,000 documents)."""
    text = json.dumps(value, sort_keys=True)
    if len(text) <= _LONGEST:
        return json.loads(text)
    return f"{len(value):,} values, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"
