"""The addresses and headers of servers that were there before: both clients use the same, and no secret of theirs is shown or kept."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from kvbench.cli.main import main
from kvbench.errors import RunFailed
from kvbench.runners.http.admin_api import call, call_for_object, open_client
from kvbench.testing.fake_connection import FakeConnection
from kvbench.testing.fake_script import Script
from kvbench.testing.fake_server import serving
from tests.runners.http.test_client import CERTIFICATE, tls_server

POOL = Script(pool_tokens=1600, block_size=16)
SIZES = ["--docs", "2", "--doc-tokens", "200", "--vocab", "1000", "--output-tokens", "2", "--quiet"]
NOBODY = "none=http://127.0.0.1:1"
Captured = pytest.CaptureFixture[str]


def run(out: Path, *options: str, tier: str = "none") -> int:
    return main(["run", "--runner", "vllm", "--tier", tier, *SIZES, *options, "--out", str(out)])


def refused(capsys: Captured, out: Path, *options: str, tier: str = "none") -> str:
    """The one line of a run that is a usage error and leaves nothing; no secret is in it."""
    assert run(out, *options, tier=tier) == 2
    err = capsys.readouterr().err
    assert err.startswith("kvbench: error: ")
    assert err.count("\n") == 1
    assert "internal error" not in err
    assert "geh" not in err
    assert not out.exists()
    return err


@pytest.mark.parametrize("login", ["user:geheim", "user:gehei=m@nis", "user:geh%2F%40eim"])
def test_a_login_in_the_address_is_kept_and_shown_nowhere(tmp_path: Path, capsys: Captured, login: str) -> None:
    with serving(POOL) as server:
        assert run(tmp_path / "run", "--url", f"none=http://{login}@127.0.0.1:{server.port}") == 0
    captured = capsys.readouterr()
    assert "geh" not in captured.out + captured.err
    for file in (tmp_path / "run").iterdir():
        assert "geh" not in file.read_text()
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["config"]["url"] == [f"none=http://***@127.0.0.1:{server.port}"]
    assert [arm["url"] for arm in manifest["arms"]] == [f"http://127.0.0.1:{server.port}"]
    again = ["run", "--config", str(tmp_path / "run" / "manifest.json"), "--out", str(tmp_path / "again")]
    assert main(again) == 2
    assert "it was masked in the manifest; give --url again on the command line" in capsys.readouterr().err


def test_a_run_without_a_login_is_repeated_from_its_manifest(tmp_path: Path, capsys: Captured) -> None:
    with serving(POOL) as server:
        assert run(tmp_path / "run", "--url", f"none={server.url}") == 0
        again = ["run", "--config", str(tmp_path / "run" / "manifest.json"), "--quiet", "--out", str(tmp_path / "again")]
        assert main(again) == 0


def test_every_request_of_both_clients_carries_the_login(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str | None]] = []
    answer = FakeConnection.on_message_complete

    def record(self: FakeConnection) -> None:
        seen.append((self._url.decode(), self._headers.get("authorization")))
        answer(self)

    monkeypatch.setattr(FakeConnection, "on_message_complete", record)
    with serving(POOL) as server:
        assert run(tmp_path / "run", "--url", f"none=http://us%3Aer:p%C3%BC@127.0.0.1:{server.port}") == 0
    assert {"/v1/completions", "/v1/models", "/metrics"} <= {path for path, _ in seen}
    assert {login for _, login in seen} == {"Basic " + base64.b64encode("us:er:pü".encode()).decode()}


def test_a_key_with_a_line_break_is_the_key(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", " geheim\r\n")
    with serving(replace(POOL, api_key="geheim")) as server:
        assert run(tmp_path / "run", "--url", f"none={server.url}", "--api-key-env", "THE_KEY") == 0


@pytest.mark.parametrize("key", ["\n", "geh\neim", "gehüim"])
def test_a_key_that_is_none(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("THE_KEY", key)
    error = refused(capsys, tmp_path / "run", "--url", NOBODY, "--api-key-env", "THE_KEY")
    assert ("header Authorization: " if key.strip() else "no such variable, or it is empty") in error


@pytest.mark.parametrize("header", ["X-Secret: gehüim", "X-Secret: geh\x01eim", "X Secret: geheim", "X-Secret: geh\neim"])
def test_a_header_that_http_cannot_carry(tmp_path: Path, capsys: Captured, header: str) -> None:
    assert "a name and a value in plain ASCII" in refused(capsys, tmp_path / "run", "--url", NOBODY, "--header", header)


@pytest.mark.parametrize(
    "options",
    [
        ["--url", "none=http://user:geheim@h:1", "--header", "authorization: Bearer geheim"],
        ["--url", "none=http://user:geheim@h:1", "--api-key-env", "THE_KEY"],
        ["--url", "none=http://h:1", "--api-key-env", "THE_KEY", "--header", "Authorization: Bearer geheim"],
    ],
)
def test_one_login_is_expected(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    monkeypatch.setenv("THE_KEY", "geheim")
    assert "another option says who is asking, too" in refused(capsys, tmp_path / "run", *options)


@pytest.mark.parametrize(
    "address",
    [
        "http://h:port",
        "http://",
        "http://[::1",
        "http://user:geh/eim@h",
        "http://user:1/geheim@h",
        "http://user:1#geheim@h",
        "http://u:g@h:geh",
    ],
)
def test_what_is_no_address_is_not_repeated(tmp_path: Path, capsys: Captured, address: str) -> None:
    error = refused(capsys, tmp_path / "run", "--url", f"none={address}")
    assert "--url none: http://[USER:PASSWORD@]HOST:PORT is expected" in error


@pytest.mark.parametrize("word", ["http://user:geh=eim@h", "gpu=http://user:geheim@h", "none=ftp://user:geheim@h"])
def test_a_login_is_masked_in_what_is_refused(tmp_path: Path, capsys: Captured, word: str) -> None:
    assert "://***@h" in refused(capsys, tmp_path / "run", "--url", word)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/v1", "http://h:1/"),
        ("http://h:1", "http://h:1//v1/"),
        ("http://h", "http://H:80"),
        ("http://user:geheim@h:1", "http://h:1"),
    ],
)
def test_one_server_is_not_two_arms_however_it_is_spelled(tmp_path: Path, capsys: Captured, first: str, second: str) -> None:
    words = ["--url", f"none={first}", "--url", f"cpu={second}"]
    assert "each arm needs a server of its own, named once" in refused(capsys, tmp_path / "run", *words, tier="none,cpu")


def test_paths_tell_servers_behind_a_gateway_apart(tmp_path: Path, capsys: Captured) -> None:
    words = ["--url", "none=http://127.0.0.1:1/a/v1", "--url", "cpu=http://127.0.0.1:1/b/v1"]
    assert run(tmp_path / "run", *words, tier="none,cpu") == 1
    assert "http://127.0.0.1:1/a/v1/models: no answer" in capsys.readouterr().err


def test_the_authorities_of_the_system_are_trusted_by_both_clients(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with serving(POOL, tls=tls_server()) as server:
        assert server.url.startswith("https:")
        assert run(tmp_path / "run", "--url", f"none={server.url}") == 0


def test_a_certificate_that_is_not_trusted_is_one_line() -> None:
    with serving(POOL, tls=tls_server()) as server, open_client() as http, pytest.raises(RunFailed, match=r"no answer.*certificate"):
        call(http, "GET", f"{server.url}/health")


def test_errors_of_untimed_calls_mask_the_login() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/down":
            raise httpx.ConnectError("refused")
        return httpx.Response(404 if request.url.path == "/missing" else 200, text="[]")

    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        for url in ("http://u:geheim@nis@h/down", "http://u:geheim@h/missing", "http://u:geheim@h/list", "http://u:x#geheim@h:1/"):
            with pytest.raises(RunFailed) as caught:
                call_for_object(http, "GET", url)
            assert str(caught.value).startswith("http://***@h")
            assert "geheim" not in str(caught.value)
            assert "'x'" not in str(caught.value)
