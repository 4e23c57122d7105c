"""Why a server is not there, in words for a person and for the model."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED
from pydantic import ValidationError

from penguin.environment.mcp.config import McpServerConfig
from penguin.environment.mcp.notes import ServerNotes

_LONGEST = 300
_STAND_INS = frozenset({"Server returned an error response", "Session terminated", "Not Found"})
"""What the SDK says when the server said nothing."""


def why(error: Exception | None, config: McpServerConfig, notes: ServerNotes, *, was_ready: bool) -> str:
    """The reason in one line; ``error`` is ``None`` when it just ended or ran out of time."""
    causes = list(leaves(error)) if error else []
    reason = notes.problem or next((said for said in (_said_of(each, config, notes) for each in causes) if said), None)
    if reason is None:
        reason = _ended(notes, was_ready=was_ready) if config.transport == "stdio" or causes else "it did not answer"
    heard = f"; it wrote: {notes.last_words}" if notes.last_words else ""
    return reason[:_LONGEST] + heard


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, however deep; a task group wraps whatever passes through it."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def is_lost(error: MCPError, notes: ServerNotes) -> bool:
    """Whether the connection is of no use any more; a web server may have forgotten the session (400, 404)."""
    return error.code == CONNECTION_CLOSED or notes.http_status is not None


def _said_of(error: BaseException, config: McpServerConfig, notes: ServerNotes) -> str | None:
    match error:
        case MCPError(code=code) if code == CONNECTION_CLOSED:
            return None
        case MCPError(message=message) if notes.http_status is not None:
            said = "" if message in _STAND_INS else f": {message}"
            return f"{_host(config)} answered with HTTP status {notes.http_status}{said}"
        case MCPError(message=message):
            return f"it answered with an error: {message}"
        case httpx2.HTTPStatusError(response=response):
            return f"{_host(config)} answered with HTTP status {response.status_code}"
        case httpx2.TimeoutException():
            return f"{_host(config)} does not answer"
        case httpx2.TransportError():
            return f"{_host(config)} cannot be reached: {error}"
        case ValidationError():
            return "its answers do not follow the protocol"
        case OSError() if config.transport == "stdio":
            return _not_started(error, config)
        case _:
            return f"{type(error).__name__}: {error}"


def _not_started(error: OSError, config: McpServerConfig) -> str:
    # The system names the file it could not use: the program, or the directory it was to start in.
    if config.cwd is not None and error.filename and str(error.filename) != config.command:
        return f"its directory {error.filename} cannot be used: {error.strerror}"
    match error.errno:
        case errno.ENOENT:
            return f"the command {config.command!r} was not found"
        case errno.EACCES:
            return f"the command {config.command!r} may not be executed"
        case _:
            return f"the command {config.command!r} cannot be started: {error.strerror or error}"


def _ended(notes: ServerNotes, *, was_ready: bool) -> str:
    how = f" ({notes.ending})" if notes.ending else ""
    return f"it ended unexpectedly{how}" if was_ready else f"it ended before it was connected{how}"


def _host(config: McpServerConfig) -> str:
    # Not the whole address: keys stand in paths and queries.
    parts = urlsplit(config.url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
