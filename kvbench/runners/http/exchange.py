"""One request and its answer: what is known of it when it has ended, and how that is found out from the stream.

Kinds of error (``RequestError.kind``), each counted and none ever sent again:

==================  ==================================================================================================================
``connect``         no connection: nobody listens, no such host, a certificate that is not trusted
``http_status``     the answer's status is not 200
``server_error``    status 200, and then an error in the stream
``closed``          the connection ended before the answer
``closed_idle``     a connection that was reused ended without an answer: the server closed it while it was idle
``bad_http``        what came back is not HTTP
``bad_event``       an event that is not JSON, or no chunk of a completion; or the stream ends within an event
``no_done``         the answer ended, as HTTP goes, without ``[DONE]``: something cut it off
``wrong_length``    more or fewer tokens than asked for
``miscounted``      the chunks' tokens do not sum to what the usage says
``uncounted``       the server says nowhere how many tokens it sent
``no_ids``          the server does not say which tokens it sent, and a later prompt is to hold them
``timeout``         it did not end in time
``stopped``         cut off, because the run was stopped
``not_sent``        never sent, because the run was stopped or given up
==================  ==================================================================================================================

How many tokens a chunk holds is never guessed. vLLM says it in every chunk when asked by ``stream_options.continuous_usage_stats``, at the
cost of some 80 bytes; ``return_token_ids`` says which tokens they are as well, but puts the whole prompt into the first chunk, so it is an
option. Ids are counted where there are any, else the usage's steps. A server that knows neither tells only the sum, in its last usage:
if that is the number of chunks that held text, each held one token; else ``chunk_tokens`` is ``None``, and the times are those of chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvbench.config.secrets import mask_login
from kvbench.runners.base import Request
from kvbench.runners.http.endpoints.endpoint import Endpoint, Usage
from kvbench.runners.http.stream import DONE, EventStream
from kvbench.runners.http.transport import Failure
from kvbench.runs.records import RequestError

ERROR_BODY_BYTES, BEGINNING_BYTES = 65536, 4096


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that has ended. Times are of the run's clock, in seconds; unknown is ``None``.

    ``token_times_s`` is when each chunk with tokens arrived, whole, and ``chunk_tokens`` how many it held. In a closed loop a request is
    scheduled when its turn comes; it is sent when it is written to a connection.
    """

    scheduled_s: float
    sent_s: float | None
    end_s: float
    token_times_s: list[float]
    chunk_tokens: list[int] | None
    output_tokens: int | None
    token_ids: list[int] | None
    prompt_tokens: int | None
    cached_tokens: int | None
    error: RequestError | None

    @property
    def first_token_s(self) -> float | None:
        """Arrival of the first chunk that held a token."""
        return self.token_times_s[0] if self.token_times_s else None

    @property
    def last_token_s(self) -> float | None:
        """Arrival of the last chunk that held a token; usage and ``[DONE]`` come later."""
        return self.token_times_s[-1] if self.token_times_s else None


class AnswerReader:
    """Reads one answer; a :class:`kvbench.runners.http.transport.Receiver`."""

    def __init__(
        self,
        request: Request,
        scheduled_s: float,
        on_end: Callable[[AnswerReader, Exchange], None],
        endpoint: Endpoint,
        needs_ids: bool = False,
        may_end_early: bool = False,
    ) -> None:
        """``needs_ids``: an answer that does not tell its token ids is a failure; ``may_end_early``: one that is too short is none."""
        self.request, self._endpoint, self._needs_ids = request, endpoint, needs_ids
        self._may_end_early = may_end_early
        self._scheduled_s, self._on_end = scheduled_s, on_end
        self._sent_s: float | None = None
        self._status: int | None = None
        self._location = ""
        self._error_body = b""
        self._beginning = b""
        self._events = EventStream()
        self._times: list[float] = []
        self._counts: list[int] = []  # by chunk; as far as every chunk's is known
        self._ids: list[int] = []
        self._counted = 0
        self._usage = Usage()
        self._done = False

    def sent(self, time_s: float) -> None:
        """Written to a connection."""
        self._sent_s = time_s

    def status(self, status: int, location: str) -> None:
        """The answer's status."""
        self._status, self._location = status, location

    def body(self, time_s: float, data: bytes) -> Failure | None:
        """Read the events that this piece completes."""
        if self._status != 200:
            self._error_body += data[: ERROR_BODY_BYTES - len(self._error_body)]
            return None
        if not self._beginning:
            self._beginning = data[:BEGINNING_BYTES]
        for event in self._events.feed(data):
            if event == DONE:
                self._done = True
            elif not self._done and (failure := self._take(time_s, event)) is not None:
                return failure
        return None

    def ended(self, time_s: float, failure: Failure | None) -> None:
        """Make the record of it."""
        if failure is not None and self._done:
            failure = None  # all was delivered; only the end of the HTTP message is missing
        counts = self._chunk_tokens(failure is not None)
        output_tokens = sum(counts) if counts is not None else self._usage.completion_tokens
        failure = failure or self._check(counts, output_tokens)
        exchange = Exchange(
            scheduled_s=self._scheduled_s,
            sent_s=self._sent_s,
            end_s=time_s,
            token_times_s=self._times,
            chunk_tokens=counts,
            output_tokens=output_tokens,
            token_ids=self._ids if self._ids and len(self._ids) == output_tokens else None,
            prompt_tokens=self._usage.prompt_tokens,
            cached_tokens=self._usage.cached_tokens,
            error=None if failure is None else RequestError(failure.kind, failure.message, self._status),
        )
        self._on_end(self, exchange)

    def _take(self, time_s: float, event: bytes) -> Failure | None:
        try:
            read = self._endpoint.read(event)
        except (ValueError, RecursionError) as error:
            return Failure("bad_event", f"not a chunk of a completion ({error}): {event[:80].decode(errors='replace')!r}")
        if read.failure is not None:
            return Failure("server_error", read.failure)
        if read.usage is not None:
            self._usage = read.usage
        if not read.adds:
            return None
        if read.token_ids is not None:
            tokens = len(read.token_ids)
        elif read.usage is not None and read.usage.completion_tokens is not None:
            tokens = read.usage.completion_tokens - self._counted
        else:  # the server does not say how many tokens are in it
            if read.has_text:
                self._times.append(time_s)
            return None
        if tokens < 0:
            return Failure("bad_event", f"the usage went back from {self._counted} tokens to {self._counted + tokens}")
        if tokens:
            self._times.append(time_s)
            self._counts.append(tokens)
            self._counted += tokens
            self._ids += read.token_ids or ()
        return None

    def _chunk_tokens(self, failed: bool) -> list[int] | None:
        """Known if every chunk said it (a usage in the last one alone is the sum of all), or if as many chunks as tokens had text."""
        chunks = len(self._times)
        if len(self._counts) == chunks:
            return self._counts
        return [1] * chunks if not failed and self._usage.completion_tokens == chunks else None

    def _check(self, counts: list[int] | None, output_tokens: int | None) -> Failure | None:
        """What is wrong with an answer that HTTP calls whole."""
        if self._status != 200:
            said = self._endpoint.read_error(self._error_body)
            if self._location:  # its query may be secret
                place = self._endpoint.read_error(mask_login(self._location.partition("?")[0]).encode())
                said = f"it sends on to {place}, where kvbench does not follow: give the address there"
            return Failure("http_status", f"HTTP {self._status}: {said}")
        # A page, or an error that is no event.
        words = "" if self._times else f"; it begins with: {self._endpoint.read_error(self._beginning)}"
        if self._events.unfinished:
            return Failure("bad_event", f"the stream ends within an event{words}")
        if not self._done:
            return Failure("no_done", f"the stream ended without [DONE], after {_tokens(output_tokens)}{words}")
        if output_tokens is None:
            return Failure("uncounted", f"{len(self._times)} chunks, and nothing says how many tokens are in them")
        if counts is not None and self._usage.completion_tokens not in (None, output_tokens):
            return Failure("miscounted", f"the chunks hold {_tokens(output_tokens)}, the usage says {self._usage.completion_tokens}")
        if self._needs_ids and len(self._ids) != output_tokens:
            return Failure("no_ids", f"the server told {len(self._ids)} token ids of {_tokens(output_tokens)} (return_token_ids)")
        ended_early = self._may_end_early and 0 < output_tokens < self.request.output_tokens
        if output_tokens != self.request.output_tokens and not ended_early:
            return Failure("wrong_length", f"{_tokens(output_tokens)}, asked for {self.request.output_tokens}")
        return None


def _tokens(count: int | None) -> str:
    return "an unknown number of tokens" if count is None else f"{count} token{'' if count == 1 else 's'}"
