"""What is shown and kept of command lines and environments."""

from __future__ import annotations

import shlex

import pytest

from kvbench.masking import mask_command, mask_value
from kvbench.runners.vllm.launch_display import describe_launch, shell_line
from kvbench.runners.vllm.tiers import Launch


@pytest.mark.parametrize("name", ["HF_TOKEN", "API_KEY", "LMCACHE_RESP_PASSWORD", "aws_secret_access_key", "api-key", "TOKEN"])
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert mask_value(name, "geheim") == "***"


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "KEYBOARD", "VLLM_HOST_IP", "chunk-tokens"])
def test_other_names_are_shown(name: str) -> None:
    assert mask_value(name, "open") == "open"


def test_logins_in_addresses_are_masked() -> None:
    assert mask_value("URL", "redis://u:geheim@cache:6379/") == "redis://***@cache:6379/"
    assert mask_value("PATH", "/a@b") == "/a@b"


def test_words_of_a_command_line() -> None:
    words = ["python", "--api-key", "geheim", "--api-key=geheim", "--port=1", "redis://u:geheim@h", "--hf-token=geheim", '--x={"a":1}']
    assert mask_command(words) == [
        "python",
        "--api-key",
        "***",
        "--api-key=***",
        "--port=1",
        "redis://***@h",
        "--hf-token=***",
        '--x={"a":1}',
    ]


def test_the_line_for_a_shell_is_what_a_shell_reads_back() -> None:
    launch = Launch(("python", "-m", "x", '--json={"a": "b c"}'), {"A": "1 2", "HF_TOKEN": "geheim"})
    assert shlex.split(shell_line(launch)) == ["A=1 2", "HF_TOKEN=***", "python", "-m", "x", '--json={"a": "b c"}']


def test_what_is_inherited_and_matters_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_X", "1")
    monkeypatch.setenv("HF_TOKEN", "geheim")
    monkeypatch.setenv("VLLM_SET", "old")
    monkeypatch.setenv("SHOE_SIZE", "44")
    described = describe_launch(Launch(("python",), {"VLLM_SET": "new"}))
    assert described["environment"] == {"VLLM_SET": "new"}
    assert {"VLLM_X": "1", "HF_TOKEN": "***"}.items() <= described["inherited"].items()
    assert not {"VLLM_SET", "SHOE_SIZE"} & set(described["inherited"])
