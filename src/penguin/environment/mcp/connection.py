"""The task that owns the SDK's client: connect, list, stay until it is time to go."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Literal

import anyio
from mcp import Client, MCPError
from mcp.client import ClientRequestContext, IncomingMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    Implementation,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl, ValidationError

from penguin._version import VERSION
from penguin.environment import custody
from penguin.environment.mcp.life import Life, ListedTool
from penguin.environment.mcp.mending import mended
from penguin.environment.mcp.notes import ServerNotes
from penguin.environment.mcp.results import CallAnswer, answer_of, has_images
from penguin.environment.mcp.stdio import Launch, stdio_streams
from penguin.environment.mcp.web import http_streams, sse_streams
from penguin.environment.mcp.words import is_lost, leaves, why
from penguin.environment.tool import ToolError

INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
"""What a server is given of the harness's own environment (N22); the rest comes from its entry."""
MOST_PAGES = 200
MOST_PROGRESS = 2_000
"""Characters of progress in one output; more would leave no room for the answer."""
_GONE_PATIENCE = 1.0
_HTTP_REFUSALS = frozenset({400, 404, 405, 406, 415, 422})

_log = logging.getLogger("penguin.environment.mcp")
# Without a handler of its own the library's errors would be printed over the terminal by logging's last resort.
logging.getLogger("mcp").addHandler(logging.NullHandler())


async def connect_and_stay(life: Life) -> None:
    """Own the connection of ``life`` until it is lost or asked to leave.

    The older handshake goes first, which every server in use answers. The newest protocol begins with a question that
    older servers may leave unanswered, or take for the end of the conversation.
    """
    try:
        await _stay(life, "legacy")
    except Exception as refusal:
        if not _may_be_newer(refusal, life):
            raise
        await _stay_with_newer(life, refusal)


def _may_be_newer(refusal: Exception, life: Life) -> bool:
    """Whether the server understood the handshake and declined it, which the newest ones do."""
    if life.speaker is not None or not all(isinstance(each, MCPError) for each in leaves(refusal)):
        return False
    lost = any(is_lost(each, life.notes) for each in leaves(refusal) if isinstance(each, MCPError))
    return not lost or life.notes.http_status in _HTTP_REFUSALS


async def _stay_with_newer(life: Life, refusal: Exception) -> None:
    life.notes = ServerNotes(life.config.name)
    try:
        await _stay(life, "auto")
    except Exception:
        if life.speaker is None:
            raise refusal from None
        raise


async def _stay(life: Life, mode: Literal["legacy", "auto"]) -> None:
    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            life.tools_changed()

    async def on_log(params: LoggingMessageNotificationParams) -> None:
        _log.debug("MCP server %s: %s: %s", life.config.name, params.level, params.data)

    async def roots(context: ClientRequestContext) -> ListRootsResult:  # noqa: ARG001 - the name is the SDK's
        workspace = life.place.workspace_dir
        return ListRootsResult(roots=[Root(uri=FileUrl(workspace.as_uri()), name=workspace.name or "workspace")])

    client = Client(
        mended(_streams(life), life.config.name),
        mode=mode,
        cache=None,
        list_roots_callback=roots,
        logging_callback=on_log,
        message_handler=on_message,
        client_info=Implementation(name="penguin", version=VERSION),
    )
    async with client, _listening(client, life):
        life.become_ready(_Speaker(client, life), await _all_tools(client))
        while await life.next_listing():
            life.listed(await _tools_again(client, life))


def _streams(life: Life) -> AbstractAsyncContextManager[Any]:
    match life.config.transport:
        case "stdio":
            return _process_streams(life)
        case "http":
            return http_streams(life.config, life.notes)
        case "sse":
            return sse_streams(life.config)


@asynccontextmanager
async def _process_streams(life: Life) -> AsyncGenerator[Any]:
    config, keeper = life.config, custody.of_this_process()
    keeper.start_guard(life.place.custody_dir)
    scope = keeper.new_scope(life.place.scope or None)
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    launch = Launch(
        arguments=[config.command, *config.args],
        directory=life.place.workspace_dir / (config.cwd or ""),
        variables={**inherited, **config.env, **keeper.mark(scope)},
        scope=scope,
    )
    async with stdio_streams(launch, life.notes, life.lose) as streams:
        yield streams


@asynccontextmanager
async def _listening(client: Client, life: Life) -> AsyncGenerator[None]:
    """Of the newest protocol a client must ask to be told of changes."""
    tools = client.server_capabilities.tools
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
        yield
        return

    async def listen() -> None:
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    life.tools_changed()
        except Exception:  # noqa: BLE001 - without it the tools stay as they are
            _log.debug("MCP server %s: changes are no longer reported", life.config.name, exc_info=True)

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        yield
        group.cancel_scope.cancel()


async def _all_tools(client: Client) -> tuple[ListedTool, ...]:
    """Every page of the list (D33), in an order that does not change from one start to the next."""
    found: dict[str, ListedTool] = {}
    cursor, seen = None, set[str | None]()
    while cursor not in seen and len(seen) < MOST_PAGES:
        seen.add(cursor)
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND and not found:
                return ()
            raise
        for tool in page.tools:
            found.setdefault(tool.name, _listed(tool))
        cursor = page.next_cursor or None
    return tuple(found[name] for name in sorted(found))


def _listed(tool: Tool) -> ListedTool:
    hint = tool.annotations.read_only_hint if tool.annotations else None
    title = tool.title or (tool.annotations.title if tool.annotations else None)
    return ListedTool(tool.name, tool.description or title or "", tool.input_schema, read_only=hint is True)


async def _tools_again(client: Client, life: Life) -> tuple[ListedTool, ...] | None:
    try:
        with anyio.fail_after(life.config.timeout):
            return await _all_tools(client)
    except (MCPError, ValidationError, TimeoutError) as error:
        _log.warning("MCP server %s: its changed tools could not be read: %s", life.config.name, error)
        return None


class _Speaker:
    def __init__(self, client: Client, life: Life) -> None:
        self._client = client
        self._life = life

    async def call(self, tool: str, args: dict[str, Any], write: Callable[[str], None]) -> CallAnswer:
        progress = _Progress(write)
        self._life.notes.http_status = None
        try:
            result = await self._client.call_tool(tool, args, progress_callback=progress.take)
        except MCPError as error:
            if is_lost(error, self._life.notes):
                raise await self._lost(tool, error) from None
            raise ToolError(f"MCP server {self._life.config.name}: {error.message}") from None
        except ValidationError:
            raise ToolError(
                f"The answer of MCP server {self._life.config.name} does not follow the protocol."
            ) from None
        finally:
            progress.close()
        told = partial(answer_of, result, vision=self._life.place.vision)
        return await anyio.to_thread.run_sync(told) if has_images(result) else told()

    async def _lost(self, tool: str, error: MCPError) -> ToolError:
        life = self._life
        life.lose()
        with anyio.move_on_after(_GONE_PATIENCE):
            await life.ended.wait()
        reason = why(error, life.config, life.notes, was_ready=True).partition("; it wrote: ")[0]
        return ToolError(
            f"MCP server {life.config.name} was lost while {tool} ran: {reason}. Whether the call had an effect is"
            " unknown. The next call starts the server again."
        )


class _Progress:
    """Progress as output, as long as the call runs: late notifications would stand behind the answer."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._left = MOST_PROGRESS

    async def take(self, progress: float, total: float | None, message: str | None) -> None:
        amount = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        line = f"[{amount}] {message}\n" if message else f"[{amount}]\n"
        if len(line) <= self._left:
            self._left -= len(line)
            self._write(line)

    def close(self) -> None:
        self._left = 0
