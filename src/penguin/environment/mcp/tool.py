"""A server's tool as a tool of the environment."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from penguin.environment.arguments import ArgumentCheck
from penguin.environment.mcp.config import McpServerConfig
from penguin.environment.mcp.life import ListedTool
from penguin.environment.mcp.schemas import for_providers
from penguin.environment.tool import DEFAULT_TIMEOUT_MS, Tool, ToolContext, ToolDefinitionConfig, ToolResult
from penguin.protocol.blocks import tool_error
from penguin.protocol.messages import scrub

if TYPE_CHECKING:
    from penguin.environment.mcp.results import CallAnswer

LONGEST_ERROR = 2_000
"""Characters of an error that are shown after the cut, where they cannot be lost."""
_log = logging.getLogger("penguin.environment.mcp")


class McpTool:
    """Passes a call on; framing, limits and truncation are the framework's. ``original`` is the server's own name."""

    def __init__(
        self,
        name: str,
        listed: ListedTool,
        config: McpServerConfig,
        call: Callable[[str, dict[str, Any], Callable[[str], None]], Awaitable[CallAnswer]],
    ) -> None:
        self.original = listed.name
        self.server = config.name
        self._call = call
        self.definition = ToolDefinitionConfig(
            name=name,
            description=scrub(listed.description) or f"{listed.name}, a tool of the MCP server {config.name}",
            parameters=_parameters(listed),
            permission=config.permission or ("r" if listed.read_only else "rw"),
            timeout_ms=timeout_ms(config),
        )

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult | None:
        """Call the server.

        Raises:
            ToolError: The server is not there, was lost during the call, or refused it.
        """
        answer = await self._call(self.original, args, ctx.write)
        if not answer.failed:
            ctx.write(answer.text)
            return ToolResult(images=answer.images)
        if len(answer.text) > LONGEST_ERROR:
            ctx.write(answer.text)
            return ToolResult(
                "failed", tool_error("The text above is the error that the tool reported."), answer.images
            )
        return ToolResult("failed", tool_error(answer.text or "The picture shows the error."), answer.images)


class LateTool:
    """Stands for a tool of a configured server that has not listed it yet: a resumed session calls what it knew (T7).

    ``find`` waits for the server, and raises when the tool is not there.
    """

    def __init__(self, name: str, config: McpServerConfig, find: Callable[[], Awaitable[Tool]]) -> None:
        self._find = find
        self.definition = ToolDefinitionConfig(
            name=name,
            parameters={"type": "object"},
            permission=config.permission or "rw",
            timeout_ms=timeout_ms(config),
        )

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult | None:
        """Wait for the tool, then run it.

        Raises:
            ToolError: There is no such tool, or the arguments are wrong.
        """
        tool = await self._find()
        return await tool.execute(ArgumentCheck(tool.definition).check(args), ctx)


def timeout_ms(config: McpServerConfig) -> int:
    """The limit for one call, in milliseconds."""
    return DEFAULT_TIMEOUT_MS if config.tool_timeout is None else max(1, round(config.tool_timeout * 1000))


def _parameters(listed: ListedTool) -> dict[str, Any]:
    try:
        return for_providers(listed.schema)
    except (RecursionError, TypeError, AttributeError):
        _log.warning(
            "the schema of MCP tool %s cannot be used; the model is told nothing of its arguments", listed.name
        )
        return {"type": "object", "properties": {}}
