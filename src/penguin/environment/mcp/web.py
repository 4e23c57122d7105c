"""Servers behind an address: streamable HTTP, and the older protocol over server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from penguin.environment.mcp.config import McpServerConfig
from penguin.environment.mcp.notes import ServerNotes

_CONNECT_TIMEOUT = 30.0
_LARGEST_EVENT = 32 << 20
_A_DAY = 86_400.0


@asynccontextmanager
async def http_streams(config: McpServerConfig, notes: ServerNotes) -> AsyncGenerator[Any]:
    """The streams of a streamable HTTP server."""

    async def note_status(response: httpx2.Response) -> None:
        # The SDK says only that there was an error. Its GET may be refused with 405, which is allowed.
        if response.request.method == "POST":
            notes.http_status = response.status_code if response.is_error else None

    # No limit on reading: a call may be silent for long, and each has a time limit of its own.
    timeout = httpx2.Timeout(_CONNECT_TIMEOUT, read=None)
    hooks = {"response": [note_status]}
    async with (
        httpx2.AsyncClient(headers=dict(config.headers), timeout=timeout, event_hooks=hooks) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=_LARGEST_EVENT) as streams,
    ):
        yield streams


def sse_streams(config: McpServerConfig) -> AbstractAsyncContextManager[Any]:
    """The streams of a server of the older protocol."""
    return sse_client(config.url, dict(config.headers), _CONNECT_TIMEOUT, _A_DAY)
