"""What is shown and kept of command lines and environments."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cli.main import main
from kvbench.config.run import RunConfig
from kvbench.config.secrets import is_masked, mask_command, mask_login, mask_value
from kvbench.experiments.composed import compose
from kvbench.runners.vllm.tiers import Launch


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_APIKEY",
        "kv-transfer-config.extra.password",
        "secretAccessKey",
        "Authorization",
        "HF_TOKEN",
        "API_KEY",
        "LMCACHE_RESP_PASSWORD",
        "aws_secret_access_key",
        "api-key",
        "TOKEN",
    ],
)
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert mask_value(name, "geheim") == "***"


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "KEYBOARD", "VLLM_HOST_IP", "chunk-tokens"])
def test_other_names_are_shown(name: str) -> None:
    assert mask_value(name, "open") == "open"


def test_a_value_that_is_empty_is_shown() -> None:
    assert mask_value("VLLM_API_KEY", "") == ""


JSON = (
    '{"connector":"X","extra":{"api_key":"geheim=","secretKey":7,"url":"redis://u:geh@eim@h:1/0","max_tokens":4,"use_auth":true,"token":"",'
    '"num_key_value_heads":2,"eos_token_id":[1,2],"auth":{"user":"geheim"},"secret_id":"geheim"}}'
)
MASKED_JSON = (
    JSON.replace("geheim=", "***")
    .replace("7", '"***"')
    .replace("u:geh@eim", "***")
    .replace('{"user":"geheim"}', '"***"')
    .replace("geheim", "***")
)


@pytest.mark.parametrize("shape", ["--x={}", "X={}", "{}", "--vllm-arg=--x={}", "--env=VLLM_X={}"])
def test_secrets_in_json_are_masked_wherever_it_stands(shape: str) -> None:
    word, masked = (shape.replace("{}", text) for text in (JSON, MASKED_JSON))
    assert mask_command([word]) == [masked]
    assert mask_command(["--x", word]) == ["--x", masked]
    assert is_masked(masked)
    assert not is_masked(word)


@pytest.mark.parametrize("word", ['--x={"a": [1.50, "b"]}', '--x={"a', "--x=[1, 2]", "--x={}", '--x="a"'])
def test_json_without_secrets_and_what_is_none_is_shown_as_it_was(word: str) -> None:
    assert mask_command([word]) == [word]


def test_logins_in_addresses_are_masked() -> None:
    assert mask_value("URL", "redis://u:geheim@cache:6379/") == "redis://***@cache:6379/"
    assert mask_value("PATH", "/a@b") == "/a@b"


@pytest.mark.parametrize("password", ["geheim@nis", "gehei=nis", "ge heim", "ge#heim?nis", "@", ":"])
def test_a_login_is_masked_whatever_the_password(password: str) -> None:
    address = f"redis://:{password}@cache:6379"
    assert mask_value("redis", address) == "redis://***@cache:6379"
    assert mask_command(["--redis", address, f"--redis={address}", f"URL={address}"]) == [
        "--redis",
        "redis://***@cache:6379",
        "--redis=redis://***@cache:6379",
        "URL=redis://***@cache:6379",
    ]
    assert mask_login(f"{address}: no answer") == "redis://***@cache:6379: no answer"


SERVER_WORDS = ["--hf-token", "geheim", "--port=1", "--api-key", "geheim", "--api-key=geheim", "plain"]
MASKED_WORDS = ["--hf-token", "***", "--port=1", "--api-key", "***", "--api-key=***", "plain"]


@given(st.lists(st.booleans(), min_size=len(SERVER_WORDS), max_size=len(SERVER_WORDS)), st.booleans())
def test_the_servers_arguments_are_a_command_line_in_turn(joined: list[bool], between: bool) -> None:
    def carry(words: list[str]) -> list[str]:
        carried = [[f"--vllm-arg={word}"] if join else ["--vllm-arg", word] for word, join in zip(words, joined, strict=True)]
        return [part for parts in carried for part in ([*parts, "--docs", "4"] if between else parts)]

    assert mask_command(carry(SERVER_WORDS)) == carry(MASKED_WORDS)
    assert mask_command(["--vllm-arg"]) == ["--vllm-arg"]


def test_an_option_that_follows_a_secret_one_is_hidden_and_still_hides_its_value() -> None:
    assert mask_command(["--use-key", "--api-key", "geheim"]) == ["--use-key", "***", "***"]


OPTIONS = (
    {
        "header": ("X: geheim",),
        "url": ("none=http://u:geheim@h:1",),
    },
    {
        "env": ("HF_TOKEN=geheim", "LMCACHE_A=redis://:geheim@h", "OMP_B=1"),
        "vllm_arg": ("--hf-token", "geheim", "--x=1", "--y", '{"a":{"password":"geheim"}}'),
        "redis": "redis://:geheim@nis@h",
        "tier": "none,redis",
    },
)
KEPT = {
    "header": ["X: ***"],
    "url": ["none=http://***@h:1"],
    "env": ["HF_TOKEN=***", "LMCACHE_A=redis://***@h", "OMP_B=1"],
    "vllm_arg": ["--hf-token", "***", "--x=1", "--y", '{"a":{"password":"***"}}'],
    "redis": "redis://***@h",
}


def config(**options: object) -> RunConfig:
    return compose("cyclic", "vllm").model_validate({"runner": "vllm", **options})


@pytest.mark.parametrize("options", OPTIONS, ids=["attached", "started"])
def test_a_configuration_keeps_no_secret_and_what_it_keeps_is_not_taken_for_one(options: dict[str, object]) -> None:
    kept = config(**{"tier": "none"} | options).resolved()
    assert "geheim" not in str(kept)
    for name in set(options) - {"tier"}:
        assert kept[name] == KEPT[name]
        again = {**kept, **{other: value for other, value in options.items() if other != name}}
        with pytest.raises(ValueError, match=rf"--{name.replace('_', '-')} .*\*\*\*.*: it was masked in the manifest; give --\S+ again"):
            config(**again)
    assert config(**kept | options).resolved() == kept


def test_a_configuration_without_secrets_is_read_back_as_it_was() -> None:
    given = {"tier": "none,redis", "env": ("OMP_B=1",), "vllm_arg": ("--x", "2"), "redis": "redis://h:1"}
    assert config(**config(**given).resolved()) == config(**config(**given).resolved() | given)
    assert not any(is_masked(word) for word in ("a*b", "**", "--x=****", "http://h/***", "none=http://h:1"))


def test_a_masked_value_ends_a_run_before_it_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "manifest.json"
    file.write_text('{"config": {"runner": "vllm", "tier": ["none"], "env": ["HF_TOKEN=***"]}}')
    assert main(["run", "--config", str(file), "--out", str(tmp_path / "run")]) == 2
    message = "--env HF_TOKEN=***: it was masked in the manifest; give --env again on the command line"
    assert capsys.readouterr().err == f"kvbench: error: {file}: {message}\n"
    assert not (tmp_path / "run").exists()


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
    launch = Launch(("python", "-m", "x", '--json={"a": "b c"}'), {"OMP_A": "1 2", "HF_TOKEN": "geheim"})
    assert shlex.split(launch.shell_line()) == ["OMP_A=1 2", "HF_TOKEN=***", "python", "-m", "x", '--json={"a": "b c"}']


def test_what_is_inherited_and_matters_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_X", "1")
    monkeypatch.setenv("HF_TOKEN", "geheim")
    monkeypatch.setenv("VLLM_SET", "old")
    monkeypatch.setenv("SHOE_SIZE", "44")
    described = Launch(("python",), {"VLLM_SET": "new"}).describe()
    assert described["environment"] == {"VLLM_SET": "new"}
    assert {"VLLM_X": "1", "HF_TOKEN": "***"}.items() <= described["inherited"].items()
    assert not {"VLLM_SET", "SHOE_SIZE"} & set(described["inherited"])


SECRET_NAMES = [
    "PGPASSWORD",
    "HFTOKEN",
    "DB_PASS",
    "JWT",
    "COOKIE",
    "MYSQL_PWD",
    "SESSION_ID",
    "APIKEY",
    "OPENAIKEY",
    "ghp",
    "WANDB",
    "DSN",
    "DATABASE_URL",
    "SMTP_LOGIN",
    "SENTRY_DSN",
    "PASS",
    "BEARER",
    "AUTHTOKEN",
    "NGC_API",
    "CREDS",
    "SAS_SIGNATURE",
    "AZURE_CONN",
    "HF_TOKEN",
    "LMCACHE_RESP_PASSWORD",
    "LMCACHE_MYTOKEN",
    "VLLM_API_KEY",
    "VLLM_APIKEY",
    "VLLM_JWT",
    "SIGNING_CERT",
    "PRIVATE_PEM",
    "LICENSE",
    "WEBHOOK",
    "OTP",
    "PIN",
    "x",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_the_value_of_a_variable_is_kept_nowhere(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    word = f"{name}=geheim;a=geheim"
    for command in (["--env", word], [f"--env={word}"], ["--sweep", f"env={word}"], [f"--sweep=env={word}"]):
        kept = mask_command(["run", *command, "--docs", "3"])
        assert "geheim" not in str(kept)
        assert kept[0] == "run"
        assert kept[-2:] == ["--docs", "3"]
    (given,) = cast("list[str]", config(tier="none", env=(word,)).resolved()["env"])
    assert "geheim" not in given
    assert is_masked(given)
    launch = Launch(("vllm",), {name: "geheim"})
    assert launch.describe()["environment"] == {name: "***"}
    assert "geheim" not in launch.shell_line()


@pytest.mark.parametrize(
    "word",
    ["OMP_NUM_THREADS=2", "VLLM_CPU_KVCACHE_SPACE=1", "LMCACHE_CHUNK_SIZE=256", "HF_HUB_OFFLINE=1", "PYTHONHASHSEED=0", "PGPASSWORD="],
)
def test_variables_that_change_what_is_measured_are_shown(word: str) -> None:
    assert mask_command(["--env", word, f"--env={word}"]) == ["--env", word, f"--env={word}"]
    assert mask_value("env", word) == word
