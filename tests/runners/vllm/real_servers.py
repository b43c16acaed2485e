"""Real servers for tests: `kvbench serve` as a process of its own, started once for many tests, and what they are asked."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from kvbench.runners.servers.counters import difference
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.servers.server import free_ports
from kvbench.runners.vllm.installation import find_python
from kvbench.runners.vllm.lmcache import await_stores
from kvbench.runners.vllm.model import shape_folder
from kvbench.workloads.draws import Draws
from tests.runners.servers.lives import MARK, all_gone

PYTHON = os.environ.get("KVBENCH_VLLM_PYTHON")
NO_PYTHON = "KVBENCH_VLLM_PYTHON names no interpreter with vLLM (scripts/vllm-environment makes one)"

VOCAB = 2048
OUTPUT = 8
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def model_with_template(folder: Path, cache: Path) -> Path:
    """The shape ``tiny`` as a model folder of one's own, with a chat template."""
    shutil.copytree(shape_folder("tiny", find_python(Path(PYTHON or "")), cache), folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


@dataclass
class Served:
    """Servers that `kvbench serve` started, and what it printed.

    Attributes:
        headers: sent with every request of :attr:`http`.
        told: everything that it printed until the servers answered.
        process: `kvbench serve` itself; ``None``: the servers are somebody else's.
    """

    tier: str
    logs: Path
    headers: Mapping[str, str] = field(default_factory=dict)
    told: str = ""
    process: subprocess.Popen[str] | None = None

    def await_ready(self) -> None:
        """Read what it prints until that is all."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told += line
            if line == "Ctrl-C stops it.\n":
                return
        raise AssertionError(f"kvbench serve --tier {self.tier} ended: {(self.logs / 'stderr').read_text()}")

    @property
    def url(self) -> str:
        """vLLM's address."""
        return self._told(r"^Address: +(\S+)/v1,")

    @property
    def lmcache_url(self) -> str:
        """LMCache's address."""
        return self._told(r"^LMCache: +(\S+)/status$")

    def _told(self, pattern: str) -> str:
        found = re.search(pattern, self.told, re.MULTILINE)
        assert found is not None
        return found[1]

    @contextmanager
    def http(self) -> Iterator[httpx.Client]:
        """A client that says who is asking."""
        with httpx.Client(timeout=120, trust_env=False, headers=dict(self.headers)) as client:
            yield client

    def read(self, client: httpx.Client, document: int, tokens: int, **more: Any) -> dict[str, Any]:
        """Send one document; the server's whole answer."""
        prompt = Draws(0, "real server", document).integers(tokens, 0, VOCAB)
        asked = {"model": KIND.served_model(client, self.url).name, "prompt": prompt, "max_tokens": OUTPUT, "ignore_eos": True}
        answer = client.post(f"{self.url}/v1/completions", json={**asked, "temperature": 0, **more})
        answer.raise_for_status()
        content: dict[str, Any] = answer.json()
        assert content["usage"]["completion_tokens"] == OUTPUT
        return content

    def read_all(self, client: httpx.Client, documents: int, tokens: int, **more: Any) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """Read documents in order: what was counted meanwhile, and the answers. Stores have landed when it returns."""
        before = KIND.scrape(client, self.url).counters
        answers = [self.read(client, document, tokens, **more) for document in range(documents)]
        if self.tier != "none":
            await_stores(client, self.lmcache_url, 60)
        return difference(before, KIND.scrape(client, self.url).counters), answers

    def stop(self) -> tuple[int, str, str]:
        """Press Ctrl-C; its exit code, what it printed since it was ready, and its stderr without what it says of its progress."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        rest = self.process.communicate(timeout=60)[0]
        lines = (self.logs / "stderr").read_text().splitlines(keepends=True)
        said = (line for line in lines if not line.startswith("kvbench: ") or line.startswith(("kvbench: error", "kvbench: warning")))
        return self.process.returncode, rest, "".join(said)


def cached(answer: Mapping[str, Any]) -> int:
    """Cached tokens of an answer, device and tier together."""
    tokens: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


def prompt_counters(counted: Mapping[str, int]) -> tuple[int, ...]:
    """Computed, from the device, from the tier; and their sum as vLLM counts it."""
    return tuple(counted[name] for name in ("prompt_tokens_computed", "prefix_hits", "external_hits", "prompt_tokens"))


@contextmanager
def served(mark: str, model: Path, folder: Path, key: str) -> Iterator[dict[str, Served]]:
    """One server for arm ``none``, which asks for a key, and one for arm ``cpu``; started together, stopped by Ctrl-C.

    In float32, so that a batch changes no token; 95 usable blocks of 32 each.
    """
    common = ["--model", str(model), "--kv-tokens=3072", "--block-size=32", "--dtype=float32", f"--env={MARK}={mark}"]
    own = {"none": [f"--vllm-arg=--api-key={key}", "--max-model-len=3000"], "cpu": ["--host-gib=1", "--chunk-tokens=256"]}
    headers = {"none": {"Authorization": f"Bearer {key}"}, "cpu": {}}
    with ExitStack() as stack:
        arms: dict[str, Served] = {}
        for tier, options in own.items():
            logs = folder / tier
            logs.mkdir()
            words = ["serve", "--vllm-python", str(PYTHON), "--tier", tier, "--logs", str(logs), f"--port={free_ports(1)[0]}"]
            command = [sys.executable, "-m", "kvbench", *words, "--startup-timeout=600", *common, *options]
            with (logs / "stderr").open("w") as errors:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            stack.callback(_end, process)
            arms[tier] = Served(tier, logs, headers[tier], process=process)
        for arm in arms.values():
            arm.await_ready()
        yield arms
        assert {tier: arm.stop() for tier, arm in arms.items()} == dict.fromkeys(arms, (0, "\nStopped.\n", ""))
        assert all_gone(mark, 0)


def _end(process: subprocess.Popen[str]) -> None:
    """Whatever came before: the supervisors stop the servers when it is gone."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
