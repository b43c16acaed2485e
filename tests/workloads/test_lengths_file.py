"""``--lengths FILE``: what is read, and each line that is no request, named by its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbench.errors import UsageError
from kvbench.workloads import lengths_file
from kvbench.workloads.lengths_file import read_lengths_file


def read(folder: Path, text: str, longest: int = 2048) -> list[tuple[int, int]]:
    file = folder / "lengths"
    file.write_bytes(text.encode())
    return read_lengths_file(file, longest)


@pytest.mark.parametrize(
    "text",
    [
        "161,338\n20,5\n",
        "161 338\r\n\r\n20\t5\r\n",
        "\n161, 338\n\n 20 ,5",
        "prompt_tokens,output_tokens\n161,338\n20,5\n",
        "\ufeffprompt_tokens,output_tokens\n161,338\n20,5\n",
        'time,output_tokens,"prompt_tokens"\n0.1,338,161\n"0,2",5,20\n',
        '{"prompt_tokens": 161, "output_tokens": 338}\n\n{"id": 2, "output_tokens": 5, "prompt_tokens": 20}\n',
    ],
)
def test_each_form_gives_the_same_requests(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == [(161, 338), (20, 5)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no request; a line a request is expected"),
        ("prompt_tokens,output_tokens\n", "holds no request"),
        ("1,2,3\n", "line 1 has 3 columns; a head that names prompt_tokens and output_tokens"),
        ("prompt,output\n1,2\n", "line 1: 'prompt' and 'output' are not two whole numbers of tokens above 0"),
        ("1,2\n\n3,x\n", "line 3: '3' and 'x' are not two whole numbers"),
        ("1,2\n0,5\n", "line 2: '0' and '5' are not"),
        ("1,2\n5\n", "line 2 has 1 of 2 columns"),
        ("1,-2\n", "line 1: '1' and '-2' are not"),
        ("1,2.5\n", "line 1: '1' and '2.5' are not"),
        ("time,prompt_tokens,output_tokens\n1,2,3\n1,2\n", "line 3 has 2 of 3 columns"),
        ("100,1948\n100,1949\n", "line 2: 100 + 1,949 tokens are more than --max-length 2048; raise it, or leave the line out"),
        (
            '{"prompt_tokens": 1, "output_tokens": 2}\n{"prompt_tokens": 1}\n',
            "line 2 is no JSON object with prompt_tokens and output_tokens",
        ),
        ('{"prompt_tokens": 1, "output_tokens": true}\n', "line 1: 1 and True are not"),
        ('{"prompt_tokens": 1, "output_tokens": 2}\nnot\n', "line 2 is no JSON object"),
        ("9" * 5000 + ",1\n", "more than --max-length 2048"),
    ],
)
def test_what_is_no_request_is_named_by_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("--lengths ")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_lengths_file(tmp_path / "missing", 2048)
    (tmp_path / "binary").write_bytes(b"1,2\n\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        read_lengths_file(tmp_path / "binary", 2048)


def test_more_requests_than_a_run_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths_file, "MOST", 2)
    assert len(read(tmp_path, "1,2\n3,4\n")) == 2
    with pytest.raises(UsageError, match="holds 3 requests, and a run has at most 2"):
        read(tmp_path, "1,2\n3,4\n5,6\n")
