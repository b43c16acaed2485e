"""A real vLLM server answers every case of ``refused.py`` as the fake server does: one start, all cases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kvbench.runners.vllm.arm_servers import ArmServers
from kvbench.runners.vllm.installation import find_python, inspect
from kvbench.runners.vllm.model import shape_folder
from kvbench.runners.vllm.options import ServerOptions
from kvbench.testing.fake_server import serving
from tests.runners.servers.lives import MARK, all_gone
from tests.runners.vllm.refused import BEYOND, CASES, LONGEST, NO_ROUTE, SCRIPT, Case, send

PYTHON = os.environ.get("KVBENCH_VLLM_PYTHON")

pytestmark = [
    pytest.mark.real_vllm,
    pytest.mark.skipif(not PYTHON, reason="KVBENCH_VLLM_PYTHON names no interpreter with vLLM (scripts/vllm-environment makes one)"),
]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a vLLM server that calls its model as the fake one does."""
    installation = inspect(find_python(Path(PYTHON or "")))
    folder = tmp_path_factory.mktemp("refusals")
    options = ServerOptions(
        model=str(shape_folder("tiny", installation.python, folder)),
        dtype="bfloat16",
        max_model_len=LONGEST,
        kv_tokens=3072,
        block_size=32,
        environment={MARK: f"refusals-{os.getpid()}"},
        startup_s=600.0,
        arguments=("--served-model-name=fake",),
    )
    with ArmServers("none", options, installation, folder) as servers:
        yield servers.url
        servers.check_alive()
    assert all_gone(options.environment[MARK], 0)


@pytest.fixture(scope="module")
def fake() -> Iterator[str]:
    with serving(SCRIPT) as server:
        yield server.url


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=120) as client:
        yield client


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_servers_answer_alike(http: httpx.Client, real: str, fake: str, case: Case) -> None:
    seen, text = send(http, real, case)
    assert seen == case.seen()
    assert case.says in text
    assert send(http, fake, case)[0] == seen


@pytest.mark.parametrize("case", BEYOND, ids=lambda case: case.name)
def test_vllm_serves_what_the_fake_server_cannot(http: httpx.Client, real: str, case: Case) -> None:
    assert send(http, real, case)[0].status == 200


@pytest.mark.parametrize(("method", "path", "status", "detail"), NO_ROUTE)
def test_a_path_that_is_none(http: httpx.Client, real: str, method: str, path: str, status: int, detail: str) -> None:
    answer = http.request(method, f"{real}{path}")
    assert (answer.status_code, answer.json()) == (status, {"detail": detail})
