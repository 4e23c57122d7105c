"""One HTTP/1.1 exchange on a plain socket: a request is read, a response is sent with its faults."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

import anyio
from anyio.abc import SocketAttribute, SocketStream

from penguin.testing.replies import Reply
from penguin.testing.turns import Pause
from penguin.testing.wire import Beat, Streamed

_BIGGEST_WRITE: Final = 65_536


@dataclass(eq=False)
class RecordedRequest:
    """One request as it came in: header names are lower case, ``raw`` is the body's bytes.

    ``client_left`` becomes true when the client closed the connection before the reply was over.
    """

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    client_left: bool = False

    @cached_property
    def body(self) -> Any:
        """The parsed body, ``None`` when it is not JSON."""
        try:
            return json.loads(self.raw)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Response:
    """What is to be sent: the body may hold waits."""

    reply: Reply
    content_type: str
    body: Iterable[Streamed]


class Connection:
    """One client: its requests are parsed from what it sends, however that is split."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._received = b""

    async def read_request(self) -> RecordedRequest | None:
        """The next request, ``None`` when the client closed the connection."""
        while b"\r\n\r\n" not in self._received:
            if not await self._read_more():
                return None
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        request_line, *lines = head.decode("latin-1").split("\r\n")
        method, path, _version = request_line.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return RecordedRequest(method, path, headers, await self._read_body(headers))

    async def read_until_closed(self) -> None:
        """Keep what a client sends early; return when it closes."""
        while await self._read_more():
            pass

    async def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("expect", "").lower() == "100-continue":
            await self.stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._read_chunks()
        return await self._read_exactly(int(headers.get("content-length", "0")))

    async def _read_chunks(self) -> bytes:
        chunks: list[bytes] = []
        while size := int((await self._read_line()).partition(b";")[0], 16):
            chunks.append(await self._read_exactly(size))
            await self._read_line()
        while await self._read_line():
            pass
        return b"".join(chunks)

    async def _read_line(self) -> bytes:
        while b"\r\n" not in self._received:
            if not await self._read_more():
                raise anyio.EndOfStream
        line, _, self._received = self._received.partition(b"\r\n")
        return line

    async def _read_exactly(self, size: int) -> bytes:
        parts, missing = [self._received], size - len(self._received)
        while missing > 0:
            parts.append(await self.stream.receive())
            missing -= len(parts[-1])
        received = b"".join(parts)
        self._received = received[size:]
        return received[:size]

    async def _read_more(self) -> bool:
        try:
            self._received += await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return False
        return True


class _CutError(Exception):
    """The script wants the connection closed here."""


@dataclass(slots=True)
class Delivering:
    """Sends one response with the faults of its delivery."""

    connection: Connection
    response: Response
    released: anyio.Event
    _sent: int = field(default=0, init=False)
    _due: float = field(default=0.0, init=False)

    async def run(self) -> bool:
        """Send everything; true when the connection may be used again."""
        delivery = self.response.reply.delivery
        self._due = anyio.current_time()
        try:
            await self._meet_faults(before_head=True)
            await self._send_all()
            await self._meet_faults(at_end=True)
        except _CutError:
            await self._close(reset=delivery.reset)
            return False
        if delivery.framing == "chunked":
            await self.connection.stream.send(b"0\r\n\r\n")
        return delivery.framing != "close"

    async def _send_all(self) -> None:
        if self.response.reply.delivery.framing == "length":
            whole = b"".join([await self._in_time(item) for item in self.response.body])
            await self._send_head(len(whole))
            await self._send_body(whole)
        else:
            await self._send_head(None)
            for part in _joined(self.response.body):
                await self._send_body(await self._in_time(part))

    async def _send_head(self, length: int | None) -> None:
        reply = self.response.reply
        headers = [("content-type", self.response.content_type), *reply.headers]
        match reply.delivery.framing:
            case "chunked":
                headers.append(("transfer-encoding", "chunked"))
            case "length":
                headers.append(("content-length", str(length)))
            case "close":
                headers.append(("connection", "close"))
        lines = [f"HTTP/1.1 {reply.status} {_phrase(reply.status)}", *(f"{name}: {value}" for name, value in headers)]
        await self.connection.stream.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _send_body(self, data: bytes) -> None:
        delivery = self.response.reply.delivery
        rest = memoryview(data)
        while rest:
            await self._meet_faults()
            size = self._until_next_fault(min(len(rest), delivery.bytes_per_write or _BIGGEST_WRITE))
            await self._write(rest[:size])
            rest = rest[size:]
            if delivery.write_delay > 0:
                await anyio.sleep(delivery.write_delay)

    async def _in_time(self, item: Streamed) -> bytes:
        """The bytes of an item; for a wait none, after it."""
        match item:
            case bytes():
                return item
            case Beat(seconds=seconds):
                self._due += seconds
                await anyio.sleep(max(0.0, self._due - anyio.current_time()))
                return b""
            case Pause(until=until) if until is not None:
                await until()
            case Pause(seconds=seconds):
                await (anyio.sleep_forever() if seconds is None else anyio.sleep(seconds))
        self._due = anyio.current_time()
        return b""

    def _until_next_fault(self, size: int) -> int:
        delivery = self.response.reply.delivery
        ahead = [at - self._sent for at in (delivery.stall, delivery.cut) if at is not None and at > self._sent]
        return min([size, *ahead])

    async def _write(self, piece: memoryview) -> None:
        self._sent += len(piece)
        if self.response.reply.delivery.framing == "chunked":
            await self.connection.stream.send(b"".join((b"%x\r\n" % len(piece), piece, b"\r\n")))
        else:
            await self.connection.stream.send(bytes(piece))

    async def _meet_faults(self, *, before_head: bool = False, at_end: bool = False) -> None:
        position = -1 if before_head else self._sent
        delivery = self.response.reply.delivery
        for at, fault in ((delivery.stall, self._stall), (delivery.cut, self._cut)):
            if at is not None and (at == position or (at_end and at > position)):
                await fault()

    async def _stall(self) -> None:
        await self.released.wait()

    async def _cut(self) -> None:
        raise _CutError

    async def _close(self, *, reset: bool) -> None:
        if reset:
            # Lingering for zero seconds makes the kernel answer with a reset instead of an orderly end.
            linger = struct.pack("ii", 1, 0)
            self.connection.stream.extra(SocketAttribute.raw_socket).setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
        await self.connection.stream.aclose()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _joined(body: Iterable[Streamed]) -> Iterator[Streamed]:
    """The body with everything joined that has no wait in between, up to a comfortable size."""
    ready: list[bytes] = []
    size = 0
    for item in body:
        if not isinstance(item, bytes) or size >= _BIGGEST_WRITE:
            yield b"".join(ready)
            ready, size = [], 0
        if not isinstance(item, bytes):
            yield item
        else:
            ready.append(item)
            size += len(item)
    yield b"".join(ready)
