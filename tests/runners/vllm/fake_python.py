"""Stands where vLLM's interpreter stands: answers what it has, and serves what vLLM and LMCache serve, as far as starting them needs.

What it should do is said in the environment: ``FAKE_HAS`` (the answer to what it has), ``FAKE_WORKERS`` (registered with LMCache),
``FAKE_DIES`` (``vllm`` or ``lmcache``). It is run as ``python -c CODE``, ``python -m MODULE ...`` or ``python SCRIPT ...``.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

DATA = Path(__file__).parent / "data"
HAS = {"vllm": "0.32.0", "lmcache": "0.5.6", "torch": "2.13.0", "device": "cpu", "devices": 0, "accelerator": None}


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = json.loads((DATA / "status-lmcache-0.5.6.json").read_text())
        status["registered_non_cuda_instance_ids"] = [7] * int(os.environ.get("FAKE_WORKERS", "1"))
        pages = {
            "/health": "",
            "/healthcheck": "",
            "/status": json.dumps(status),
            "/version": '{"version": "0.32.0"}',
            "/v1/models": '{"data": [{"id": "tiny", "root": "/m", "max_model_len": 3040}]}',
            "/metrics": (DATA / "metrics-vllm-0.32.0.txt").read_text(),
        }
        self.send_response(200 if self.path in pages else 404)
        self.end_headers()
        self.wfile.write(pages.get(self.path, "").encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve(module: str, arguments: list[str]) -> None:
    name = module.partition(".")[0]
    print(f"{name} {' '.join(arguments)}", flush=True)
    if os.environ.get("FAKE_DIES") == name:
        sys.exit("OSError: [Errno 98] Address already in use")
    port = next(word.partition("=")[2] for flag in ("--http-port=", "--port=") for word in arguments if word.startswith(flag))
    HTTPServer(("127.0.0.1", int(port)), Answer).serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "-m":
        serve(sys.argv[2], sys.argv[3:])
    elif sys.argv[1] == "-c":
        print(os.environ.get("FAKE_HAS") or json.dumps(HAS))
    else:
        sys.exit("ModuleNotFoundError: No module named 'torch'")
