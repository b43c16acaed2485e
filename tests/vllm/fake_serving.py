"""Stands where vLLM's interpreter stands, and serves with kvbench's own fake server: the pool it is told, and a script of the environment.

``FAKE_SCRIPT`` holds arguments for ``python -m kvbench.testing.fake_server``, separated by spaces.
"""

from __future__ import annotations

import json
import os
import sys

HAS = {"vllm": "0.32.0", "lmcache": None, "torch": "2.13.0", "device": "cpu", "devices": 0, "accelerator": None}


def serve(arguments: list[str]) -> None:
    told = dict(word.removeprefix("--").partition("=")[::2] for word in arguments)
    block = int(told.get("block-size", "16"))
    pool = int(told.get("num-gpu-blocks-override", "100")) * block
    words = [
        sys.executable,
        "-m",
        "kvbench.testing.fake_server",
        f"--port={told['port']}",
        f"--pool-tokens={pool}",
        f"--block-size={block}",
    ]
    os.execv(sys.executable, [*words, *os.environ.get("FAKE_SCRIPT", "").split()])


if __name__ == "__main__":
    if sys.argv[1] == "-m":
        serve(sys.argv[3:])
    elif sys.argv[1] == "-c":
        print(json.dumps(HAS))
    else:
        sys.exit("this interpreter only serves")
