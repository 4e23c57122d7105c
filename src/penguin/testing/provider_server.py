"""A provider of models that says what a script tells it: a real HTTP server on the loopback.

Requests, connections and bytes are real; only the words are scripted. The server is written on plain
sockets, because the faults it can show (a reset in the middle of a chunk, one byte per write, silence)
are out of reach of a web framework. It is used in three ways::

    async with ScriptedProvider(["Hello."]) as provider:
        ...  # in the same event loop: provider.base_url

    with serve_in_thread(["Hello."]) as provider:
        ...  # from synchronous code, or when the client blocks

    python -m penguin.testing.provider_server SCRIPT.json   # in a process of its own; see script_file.py
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Literal, Self, TypeAlias

import anyio
import anyio.from_thread
from anyio.abc import SocketAttribute, SocketStream
from anyio.from_thread import BlockingPortal

from penguin.protocol.errors import ScriptError
from penguin.testing import legality
from penguin.testing.http_exchange import Connection, Delivering, RecordedRequest, Response
from penguin.testing.replies import Delivery, Raw, ReadyReply, Refusal, Reply, ReplyLike, as_reply
from penguin.testing.script_file import read_script
from penguin.testing.turns import Pause, Turn
from penguin.testing.wire import Saying, Wire, anthropic_messages, gemini, openai_chat, openai_responses

WIRES: Final[tuple[Wire, ...]] = (openai_chat.WIRE, anthropic_messages.WIRE, openai_responses.WIRE, gemini.WIRE)
"""Every protocol the server speaks; the path of a request picks one."""

WhenExhausted: TypeAlias = Literal["error", "repeat"]

_EXHAUSTED_STATUS: Final = 400
_SERVER_ERROR: Final = 500


class ScriptedProvider:
    """The server, for use inside an event loop.

    Each request to a model takes the next reply of the script; ``GET …/models`` lists one model and
    takes none.

    Args:
        replies: One entry for each request, retries included: a reply, a turn, a string, or a function
            ``(parsed body) -> reply``.
        when_exhausted: ``error`` answers 400, which no client retries, and notes a problem; ``repeat``
            gives the last reply again.
        port: 0 takes a free one.
        on_request: Called with each request before it is answered.
        check_requests: Whether an illegal request is refused as the real provider would, and noted as a
            problem; see `penguin.testing.legality`. Off only where the requests are not the subject.

    Attributes:
        requests: Every request so far, refused ones too.
        problems: What was wrong with how the script was used, or with a request; empty is good.

    Example::

        async with ScriptedProvider([call("read_file", {"file_path": "a.txt"}), "It says hi."]) as provider:
            await use(provider.base_url)
        assert provider.requests[1].body["messages"][-1]["role"] == "tool"
        provider.assert_exhausted()
    """

    def __init__(
        self,
        replies: Iterable[ReplyLike],
        *,
        when_exhausted: WhenExhausted = "error",
        port: int = 0,
        on_request: Callable[[RecordedRequest], None] | None = None,
        check_requests: bool = True,
    ) -> None:
        self.requests: list[RecordedRequest] = []
        self.problems: list[str] = []
        self._replies: deque[ReplyLike] = deque(replies)
        self._last: ReplyLike | None = None
        self._when_exhausted = when_exhausted
        self._port = port
        self._answered = 0
        self._on_request = on_request
        self._check_requests = check_requests

    @property
    def base_url(self) -> str:
        """The address as clients of the OpenAI protocols want it, ending in ``/v1``."""
        return f"{self.host_url}/v1"

    @property
    def host_url(self) -> str:
        """The address without a path, as clients of Anthropic Messages and Gemini want it."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._released = anyio.Event()
        self._progress = anyio.Event()
        self._listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)
        self._port = self._listener.extra(SocketAttribute.local_port)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._listener.serve, self._serve_connection)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The group is not told about an exception of the block: it would come out as an ExceptionGroup.
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        await self._listener.aclose()

    def release(self) -> None:
        """Let every stalled reply go on, those that stall later too."""
        self._released.set()

    async def wait_for_requests(self, count: int) -> None:
        """Wait until this many requests have come in."""
        while len(self.requests) < count:
            await self._progress.wait()

    async def wait_for_departures(self, count: int) -> None:
        """Wait until this many clients closed their connection before the reply was over."""
        while sum(request.client_left for request in self.requests) < count:
            await self._progress.wait()

    def assert_exhausted(self) -> None:
        """Check that every reply was used and every request foreseen.

        Raises:
            ScriptError: Replies are left, or there are `problems`.
        """
        complaints = list(self.problems)
        if self._replies:
            complaints.append(f"{len(self._replies)} of the script's replies were never asked for")
        if complaints:
            raise ScriptError("; ".join(complaints))

    # ------------------------------------------------------------ connections

    async def _serve_connection(self, stream: SocketStream) -> None:
        connection = Connection(stream)
        # A client may vanish or talk nonsense at any moment; the other connections must not notice.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError, ValueError):
            async with stream:
                stream.extra(SocketAttribute.raw_socket).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while await self._serve_request(connection):
                    pass

    async def _serve_request(self, connection: Connection) -> bool:
        """Answer one request; false when the connection is over."""
        request = await connection.read_request()
        if request is None:
            return False
        self.requests.append(request)
        if self._on_request is not None:
            self._on_request(request)
        self._announce_progress()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_for_departure, connection, request, tasks.cancel_scope)
            keep = await self._answer(connection, request)
            tasks.cancel_scope.cancel()
            return keep
        return False

    async def _watch_for_departure(
        self, connection: Connection, request: RecordedRequest, scope: anyio.CancelScope
    ) -> None:
        await connection.read_until_closed()
        request.client_left = True
        self._announce_progress()
        scope.cancel()

    async def _answer(self, connection: Connection, request: RecordedRequest) -> bool:
        response = self._response(request)
        try:
            return await Delivering(connection, response, self._released).run()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return False

    def _announce_progress(self) -> None:
        self._progress.set()
        self._progress = anyio.Event()

    # ------------------------------------------------------------ what is answered

    def _response(self, request: RecordedRequest) -> Response:
        path = request.path.partition("?")[0]
        wire = next((wire for wire in WIRES if wire.answers(path)), None)
        if request.method == "GET" and path.endswith("/models"):
            return _plain(HTTPStatus.OK, _MODELS)
        if wire is None or request.method != "POST":
            return self._refuse(WIRES[0], HTTPStatus.NOT_FOUND, f"no such route: {request.method} {path}")
        if not isinstance(request.body, dict):
            return self._refuse(wire, HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
        complaints = self._complaints(wire, path, request.body)
        if complaints:
            return self._refuse(wire, HTTPStatus.BAD_REQUEST, *complaints)
        try:
            reply = self._next_reply(request.body)
        except ScriptError as error:
            return self._refuse(wire, _EXHAUSTED_STATUS, str(error))
        except Exception as error:  # noqa: BLE001 - a scripted function may do anything; the client gets an answer
            return self._refuse(wire, _SERVER_ERROR, f"{type(error).__name__}: {error}")
        return self._worded(wire, path, request, reply)

    def _next_reply(self, body: dict[str, Any]) -> Reply:
        if self._replies:
            self._last = self._replies.popleft()
        elif self._when_exhausted == "error" or self._last is None:
            raise ScriptError(f"the script is exhausted: it had {self._answered} replies")
        self._answered += 1
        ready: ReadyReply = self._last(body) if callable(self._last) else self._last
        return as_reply(ready)

    def _worded(self, wire: Wire, path: str, request: RecordedRequest, reply: Reply) -> Response:
        match reply.content:
            case Turn() as turn:
                saying = Saying(turn, reply.style, request.body, len(request.raw), self._answered)
                return _worded_turn(wire, reply, saying, streamed=wire.streams(path, request.body))
            case Refusal() as refusal:
                return Response(reply, "application/json", [wire.refusal(reply.status, refusal)])
            case Raw(body, content_type):
                return Response(reply, content_type, [body])

    def _complaints(self, wire: Wire, path: str, body: dict[str, Any]) -> list[str]:
        if not self._check_requests or wire.name not in legality.PROTOCOLS:
            return []
        return legality.check(wire.name, body, model=path.rpartition("/")[2])

    def _refuse(self, wire: Wire, status: int, message: str, *more: str) -> Response:
        """Refuse with the first message, as providers do, and note all of them."""
        self.problems += [message, *more]
        return _plain(status, wire.refusal(status, Refusal(message)))


_MODELS: Final = b'{"object":"list","data":[{"id":"scripted","object":"model","created":1,"owned_by":"penguin"}]}'


def _plain(status: int, body: bytes) -> Response:
    return Response(Reply(Raw(body), status, delivery=Delivery(framing="length")), "application/json", [body])


def _worded_turn(wire: Wire, reply: Reply, saying: Saying, *, streamed: bool) -> Response:
    if streamed:
        return Response(reply, "text/event-stream", wire.events(saying))
    waits = [Pause(saying.turn.delay)] if saying.turn.delay > 0 else []
    waits += [block for block in saying.turn.blocks if isinstance(block, Pause)]
    return Response(reply, "application/json", [*waits, wire.whole(saying)])


def prepared(said: ReadyReply, request: dict[str, Any] | None = None, *, wire: Wire = openai_chat.WIRE) -> Reply:
    """Word the event stream of a turn now, so that serving it costs next to nothing; for benchmarks.

    Example::

        serve_in_thread([prepared("abcdefgh" * 100_000)], when_exhausted="repeat")
    """
    reply = as_reply(said)
    if not isinstance(reply.content, Turn):
        return reply
    words = wire.events(Saying(reply.content, reply.style, request or {}, 0, 1))
    return replace(reply, content=Raw(b"".join(part for part in words if isinstance(part, bytes))))


# ---------------------------------------------------------------- in a thread


class ThreadedProvider:
    """A `ScriptedProvider` whose event loop runs in another thread; every method blocks."""

    def __init__(self, provider: ScriptedProvider, portal: BlockingPortal) -> None:
        self._provider = provider
        self._portal = portal

    @property
    def base_url(self) -> str:
        """The address as clients of the OpenAI protocols want it, ending in ``/v1``."""
        return self._provider.base_url

    @property
    def host_url(self) -> str:
        """The address without a path, as clients of Anthropic Messages and Gemini want it."""
        return self._provider.host_url

    @property
    def requests(self) -> list[RecordedRequest]:
        """Every request so far."""
        return self._provider.requests

    @property
    def problems(self) -> list[str]:
        """What was wrong with how the script was used."""
        return self._provider.problems

    def release(self) -> None:
        """Let every stalled reply go on, those that stall later too."""
        self._portal.call(self._provider.release)

    def wait_for_requests(self, count: int, timeout: float = 10.0) -> None:
        """Wait until this many requests have come in; ``TimeoutError`` after ``timeout`` seconds."""
        self._portal.call(_within, timeout, self._provider.wait_for_requests, count)

    def wait_for_departures(self, count: int, timeout: float = 10.0) -> None:
        """Wait until this many clients left early; ``TimeoutError`` after ``timeout`` seconds."""
        self._portal.call(_within, timeout, self._provider.wait_for_departures, count)

    def assert_exhausted(self) -> None:
        """Check that every reply was used and every request foreseen; raises ``ScriptError``."""
        self._provider.assert_exhausted()


async def _within(seconds: float, wait: Callable[[int], Awaitable[None]], count: int) -> None:
    with anyio.fail_after(seconds):
        await wait(count)


@contextmanager
def serve_in_thread(
    replies: Iterable[ReplyLike],
    *,
    when_exhausted: WhenExhausted = "error",
    port: int = 0,
    check_requests: bool = True,
) -> Iterator[ThreadedProvider]:
    """Serve from a thread of its own, for synchronous code.

    Example::

        with serve_in_thread(["Hello."]) as provider:
            subprocess.run(["penguin", "run", "-m", "hi"], env={**env, "OPENAI_BASE_URL": provider.base_url})
    """
    provider = ScriptedProvider(replies, when_exhausted=when_exhausted, port=port, check_requests=check_requests)
    with anyio.from_thread.start_blocking_portal() as portal, portal.wrap_async_context_manager(provider):
        yield ThreadedProvider(provider, portal)


# ---------------------------------------------------------------- in a process


def main(arguments: Sequence[str] | None = None, output: IO[str] | None = None) -> int:
    """Serve the script of a file until SIGINT or SIGTERM; prints ``{"base_url": …}`` as its first line."""
    parser = argparse.ArgumentParser(prog="python -m penguin.testing.provider_server")
    parser.add_argument("script", type=Path, help="a JSON file; see penguin/testing/script_file.py")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--record", type=Path, help="append every request to this file, one JSON object a line")
    options = parser.parse_args(arguments)
    script = read_script(options.script)
    record = partial(_append_line, options.record) if options.record else None
    provider = ScriptedProvider(
        script.replies, when_exhausted=script.when_exhausted, port=options.port, on_request=record
    )
    anyio.run(_serve_until_signal, provider, output or sys.stdout)
    return 0


async def _serve_until_signal(provider: ScriptedProvider, output: IO[str]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with provider:
            output.write(json.dumps({"base_url": provider.base_url}) + "\n")
            output.flush()
            async for _ in signals:
                break


def _append_line(file: Path, request: RecordedRequest) -> None:
    entry = {"method": request.method, "path": request.path, "body": request.body}
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(entry, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
