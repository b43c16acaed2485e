"""Stands where vLLM's interpreter stands, and serves with kvbench's own fake server: the pool it is told, and a script of the environment.

``FAKE_SCRIPT`` holds arguments for ``python -m kvbench.testing.fake_server``, separated by spaces. ``FAKE_ARRIVALS`` names a file that gets
the id of every request as it arrives, a line each. ``FAKE_LMCACHE`` is the version of LMCache that is said to be there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

HAS = {"vllm": "0.32.0", "lmcache": os.environ.get("FAKE_LMCACHE"), "torch": "2.13.0", "device": "cpu", "devices": 0, "accelerator": None}


def serve(arguments: list[str]) -> int:
    from kvbench.testing import fake_server
    from kvbench.testing.fake_server import FakeServer
    from kvbench.testing.fake_state import Truth
    from kvbench.testing.fake_stream import Ask

    class Reporting(FakeServer):
        def admit(self, ask: Ask, arrival_s: float) -> tuple[Truth, str, int]:
            with Path(os.environ.get("FAKE_ARRIVALS", os.devnull)).open("a") as arrivals:
                arrivals.write(f"{ask.request_id}\n")
            return super().admit(ask, arrival_s)

    told = dict(word.removeprefix("--").partition("=")[::2] for word in arguments)
    block = int(told.get("block-size", "16"))
    pool = int(told.get("num-gpu-blocks-override", "100")) * block
    words = [f"--port={told['port']}", f"--pool-tokens={pool}", f"--block-size={block}"]
    if "no-enable-prefix-caching" in told:
        words.append("--no-prefix-caching")
    vars(fake_server)["FakeServer"] = Reporting
    return fake_server.main([*words, *os.environ.get("FAKE_SCRIPT", "").split()])


if __name__ == "__main__":
    if sys.argv[1] == "-m":
        sys.exit(serve(sys.argv[3:]))
    elif sys.argv[1] == "-c":
        print(json.dumps(HAS))
    else:
        sys.exit("this interpreter only serves")
