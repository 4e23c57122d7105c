"""A server that is a process of ours: one message a line on its standard input and output.

The SDK has a transport of its own. It ends a server for good at the first byte that is not UTF-8, cannot keep what the
server writes to standard error, adds to the environment we chose, and loses grandchildren that left the process group.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from penguin.environment import custody, custody_guard
from penguin.environment.arguments import scrubbed
from penguin.environment.exit_words import exit_words
from penguin.environment.mcp.notes import ServerNotes

LONGEST_MESSAGE = 32 << 20
"""Bytes in one line. A longer one ends the connection: whoever waits for it would wait for ever."""
EXIT_PATIENCE = 0.5
"""Seconds a server has to exit by itself after its standard input was closed, which is how MCP says goodbye."""
GRACE = 2.0
"""Seconds between TERM and KILL."""
_CHUNK = 1 << 16
_POLL = 0.02
_DRAIN = 0.2

_log = logging.getLogger("penguin.environment.mcp")


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server; ``scope`` is its custody, ``variables`` its whole environment."""

    arguments: list[str]
    directory: Path
    variables: Mapping[str, str]
    scope: str


@asynccontextmanager
async def stdio_streams(
    launch: Launch, notes: ServerNotes, lost: Callable[[], None]
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[SessionMessage]]]:
    """The streams of a new process, which ends with this scope; ``lost`` is called when it ends before.

    Raises:
        OSError: It cannot be started.
    """
    to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    with to_session, incoming, outgoing, from_session:
        server = ServerProcess(launch, notes)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(server.read_messages, to_session, lost)
                group.start_soon(server.write_messages, from_session)
                group.start_soon(server.read_stderr)
                group.start_soon(server.watch, to_session)
                try:
                    yield incoming, outgoing
                finally:
                    with anyio.CancelScope(shield=True):
                        await server.stop()
                    group.cancel_scope.cancel()
        finally:
            server.close()


class ServerProcess:
    """The process and our ends of its pipes."""

    def __init__(self, launch: Launch, notes: ServerNotes) -> None:
        self._notes = notes
        self._scope = launch.scope
        self._writing = anyio.CancelScope()
        self._written = anyio.Event()
        self._stopping = False
        # Not anyio.open_process: on asyncio it waits for the end of the pipes too, which a grandchild may hold open.
        self._process = subprocess.Popen(  # noqa: S603 - the user's own configuration
            launch.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=launch.directory,
            env=dict(launch.variables),
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr  # noqa: S101, PT018 - PIPE
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)

    # ------------------------------------------------------------ reading

    async def read_messages(self, to_session: MemoryObjectSendStream[Any], lost: Callable[[], None]) -> None:
        """Pass on what is a message, note what is not; goes on reading when nobody listens, so that it can exit."""
        with to_session, suppress(OSError):
            async for line in self._lines():
                message = _message_in(line)
                if message is not None:
                    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                        await to_session.send(message)
                elif line.strip():
                    self._notes.junk(line)
        if not self._stopping:
            lost()

    async def _lines(self) -> AsyncGenerator[bytes]:
        pending = bytearray()
        while chunk := await _read(self._stdout.fileno()):
            searched = len(pending)
            pending += chunk
            if b"\n" in chunk:
                *lines, rest = bytes(pending).split(b"\n")
                pending = bytearray(rest)
                for line in lines:
                    yield line
            elif searched > LONGEST_MESSAGE:
                self._notes.problem = f"it wrote a line of more than {LONGEST_MESSAGE >> 20} MiB"
                return

    async def read_stderr(self) -> None:
        """Keep the pipe empty: a server blocked on a full one answers nobody."""
        with suppress(OSError):
            while chunk := await _read(self._stderr.fileno()):
                self._notes.stderr(chunk)

    async def watch(self, to_session: MemoryObjectSendStream[Any]) -> None:
        """Tell the session that the process is gone even when a grandchild holds its standard output open."""
        await self._exit()
        await anyio.sleep(_DRAIN)
        to_session.close()

    # ------------------------------------------------------------ writing

    async def write_messages(self, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write until the session or the server closes its end."""
        try:
            with from_session, self._writing, suppress(OSError):
                async for item in from_session:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await _write(self._stdin.fileno(), text.encode() + b"\n")
        finally:
            self._written.set()

    # ------------------------------------------------------------ the end

    async def stop(self) -> None:
        """Close its standard input, wait a moment, then end it and everything it started."""
        self._stopping = True
        self._writing.cancel()
        with anyio.move_on_after(GRACE):
            await self._written.wait()  # a pipe must not be closed under a task that waits for it
        self._stdin.close()
        with anyio.move_on_after(EXIT_PATIENCE):
            await self._exit()
        if not await anyio.to_thread.run_sync(self._end):
            _log.warning("MCP server %s could not be ended", self._notes.server)
        with anyio.move_on_after(GRACE):
            await self._exit()
        if self._process.returncode is not None and self._notes.ending is None:
            self._notes.ending = exit_words(self._process.returncode)

    def _end(self) -> bool:
        if self._process.returncode is None:
            return custody.end_group(self._process.pid, self._scope, GRACE)
        # The number of a process that was waited for may belong to another one by now; its marked children do not.
        return custody_guard.end_all(lambda: custody.members(self._scope), GRACE)

    async def _exit(self) -> None:
        descriptor = _descriptor_of(self._process)
        if descriptor is not None:
            try:
                await anyio.wait_readable(descriptor)
            finally:
                os.close(descriptor)
        while self._process.poll() is None:  # noqa: ASYNC110 - where there are no descriptors of processes
            await anyio.sleep(_POLL)
        if self._notes.ending is None:
            self._notes.ending = exit_words(self._process.returncode)

    def close(self) -> None:
        """Release the pipes, when no task uses them any more."""
        for pipe in (self._stdin, self._stdout, self._stderr):
            with suppress(OSError):
                pipe.close()


def _descriptor_of(process: subprocess.Popen[bytes]) -> int | None:
    """A descriptor that becomes readable when the process exits, where the system has such a thing."""
    if process.poll() is not None or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        return None


async def _read(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:
            await anyio.wait_readable(descriptor)


async def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            await anyio.wait_writable(descriptor)


def _message_in(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return _message_in_bad_text(line) if b'"jsonrpc"' in line else None


def _message_in_bad_text(line: bytes) -> SessionMessage | None:
    """A message whose text is cut in the middle of a character: bytes that are not UTF-8, half an escaped pair."""
    try:
        value = scrubbed(json.loads(line.decode(errors="replace")))
        return SessionMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
    except (ValueError, RecursionError):
        return None
