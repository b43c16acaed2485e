"""A server that speaks OpenAI's completions API as vLLM 0.32 does, without a model: deterministic, scripted, and knowing the truth.

It ships with kvbench, so that whoever doubts a figure, or changes the client, can hold it against a known answer:
``python -m kvbench.testing.fake_server --first-token-s 0.05 --gap-s 0.01`` prints its address. Tests run it in a thread of theirs
(:func:`serving`). What it did is known by request id, the header ``X-Request-Id`` (:class:`kvbench.testing.fake_state.Truth`).

Beside vLLM's and LMCache's paths it has its own: ``GET /fake/truth``, and as POST with a JSON object ``/fake/script`` (fields to change),
``/fake/counters`` (names and what to add), ``/fake/close`` (every idle connection) and ``/fake/die``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import signal
import ssl
import sys
import threading
from collections.abc import Iterator
from typing import get_args, get_type_hints

from kvbench.errors import UsageError
from kvbench.runners.http.process import new_event_loop
from kvbench.testing.fake_connection import FakeConnection
from kvbench.testing.fake_script import FAULTS, Script
from kvbench.testing.fake_state import FakeState


class FakeServer(FakeState):
    """The same, listening."""

    _server: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Listen; port 0: a free one."""
        self._server = await asyncio.get_running_loop().create_server(lambda: FakeConnection(self), host, port, ssl=tls, backlog=4096)
        address, self.port = self._server.sockets[0].getsockname()[:2]
        self.url = f"{'https' if tls else 'http'}://{f'[{address}]' if ':' in address else address}:{self.port}"

    def die(self) -> None:
        """Break every connection and listen no more."""
        if self._server is not None:
            self._server.close()
        super().die()

    async def end(self) -> None:
        """Die, and return when the connections have heard of it."""
        self.die()
        while self.connections:
            await asyncio.sleep(0)


@contextlib.contextmanager
def serving(script: Script | None = None, tls: ssl.SSLContext | None = None) -> Iterator[FakeServer]:
    """A server on a free loopback port, in a thread of this process, until the block ends."""
    server, loop = FakeServer(script), new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake server", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(tls=tls), loop).result()
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def main(arguments: list[str] | None = None) -> int:
    """Serve until Ctrl-C, SIGTERM or the fault ``die``; the first line of the output is the address."""
    options = vars(_parser().parse_args(arguments))
    host, port = options.pop("host"), options.pop("port")
    try:
        script = Script(**options)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve_alone(script, host, port))
    except KeyboardInterrupt:
        return 130
    except (OSError, ValueError, UsageError) as error:
        print(f"fake server: {error}", file=sys.stderr)
        return 1


async def _serve_alone(script: Script, host: str, port: int) -> int:
    server = FakeServer(script)
    await server.start(host, port)
    ended = asyncio.Event()
    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print(server.url, flush=True)
    waiting = {asyncio.ensure_future(event.wait()) for event in (ended, server.dead)}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    died = server.dead.is_set()
    server.die()
    return int(died)


def _parser() -> argparse.ArgumentParser:
    """Options: the address, and every field of :class:`Script`."""
    parser = argparse.ArgumentParser(
        prog="python -m kvbench.testing.fake_server",
        description="A scripted server that speaks OpenAI's completions API as vLLM does, without a model.",
        epilog="faults: " + "; ".join(f"{name}: {does}" for name, does in FAULTS.items()) + ". N: --fault-after.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: a free one (default: %(default)s)")
    kinds = get_type_hints(Script)
    for field in dataclasses.fields(Script):
        flag, kind = "--" + field.name.replace("_", "-"), kinds[field.name]
        says = field.metadata["help"] + " (default: %(default)s)"
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=field.default, help=field.metadata["help"])
        else:
            kind = next((part for part in get_args(kind) if part is not type(None)), kind)
            choices = ("", *FAULTS) if field.name == "fault" else None
            parser.add_argument(flag, type=kind, default=field.default, choices=choices, metavar=kind.__name__.upper(), help=says)
    return parser


if __name__ == "__main__":
    sys.exit(main())
