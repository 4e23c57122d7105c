"""One configured server: its lives, one after the other, and what people are told about it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penguin.environment.mcp.config import McpServerConfig
from penguin.environment.mcp.life import Life, ListedTool, Place
from penguin.environment.mcp.naming import tool_names
from penguin.environment.mcp.report import McpReport, McpState
from penguin.environment.mcp.tool import LateTool, McpTool
from penguin.environment.tool import Tool, ToolError

if TYPE_CHECKING:
    from penguin.environment.mcp.results import CallAnswer

RETRY_WAIT = 1.0
"""Seconds a context waits for a server that was too slow before; it joins the one after."""
LEAVE_PATIENCE = 3.0
_GRAVITY: dict[McpState, int] = {"idle": 0, "starting": 0, "connected": 0, "slow": 1, "failed": 2}
_log = logging.getLogger("penguin.environment.mcp")


class McpServer:
    """Connects when asked, again when the connection was lost; ``tell`` hears what a person should know, once."""

    def __init__(self, config: McpServerConfig, prefix: str, place: Place, tell: Callable[[McpReport], None]) -> None:
        self.config = config
        self.prefix = prefix
        self._place = place
        self._tell = tell
        self._life: Life | None = None
        self._fading: list[Life] = []
        self._was_slow = False
        self._gravest = 0
        self._closed = False

    # ------------------------------------------------------------ connecting

    def begin(self) -> Life:
        """Start to connect, unless that was done; whoever comes while it lasts gets the same connection.

        Raises:
            ToolError: The session is closed.
        """
        if self._closed:
            raise ToolError(f"The session is closed; MCP server {self.config.name} cannot be called.")
        if self._life is None or self._life.over:
            self._fading = [each for each in (*self._fading, self._life) if each and not each.ended.is_set()]
            self._life = Life(self.config, self._place, self._changed)
            self._life.start()
        return self._life

    async def settle(self) -> None:
        """Wait until it is connected, has failed, or its time is up; then for a changed list of tools."""
        life = self.begin()
        await life.settle(min(RETRY_WAIT, self.config.timeout) if self._was_slow else self.config.timeout)
        await life.relist()
        if life is self._life and not life.settled.is_set():
            self._was_slow = True
            self._report(self.report)

    @property
    def report(self) -> McpReport:
        """Its state now."""
        life, name = self._life, self.config.name
        if life is None:
            return McpReport(name, "idle")
        if life.ready:
            return McpReport(name, "connected", tools=len(self._offered(life)))
        if life.ended.is_set() or life.over:
            return McpReport(name, "failed", life.reason or "it was lost")
        if self._was_slow:
            return McpReport(name, "slow", f"it was not connected within {self.config.timeout:g} s")
        return McpReport(name, "starting")

    def _changed(self) -> None:
        if self._closed or self._life is None:
            return
        report = self.report
        if report.state == "failed" and not self._life.ended.is_set():
            return  # the reason comes with the end
        if report.state == "connected":
            self._was_slow = False
        self._report(report)

    def _report(self, report: McpReport) -> None:
        """Tell what is news: trouble when it is graver than what was told, and the end of it."""
        gravity = _GRAVITY[report.state]
        if gravity > self._gravest or (report.state == "connected" and self._gravest):
            self._gravest = gravity
            self._tell(report)

    # ------------------------------------------------------------ tools

    def tools(self) -> list[McpTool]:
        """What it offers now; nothing while it is not connected."""
        life = self._life
        if life is None or not life.ready:
            return []
        names = tool_names(self.prefix, [each.name for each in life.tools])
        return [McpTool(names[each.name], each, self.config, self.call) for each in self._offered(life)]

    def _offered(self, life: Life) -> list[ListedTool]:
        allowed = self.config.tools
        return [each for each in life.tools if allowed is None or each.name in allowed]

    def late_tool(self, name: str) -> LateTool:
        """A tool it is expected to have."""

        async def find() -> Tool:
            await self._usable()
            offered = {each.definition.name: each for each in self.tools()}
            if name not in offered:
                known = ", ".join(list(offered)[:50]) or "none"
                raise ToolError(f"MCP server {self.config.name} has no tool {name}; it has {known}.")
            return offered[name]

        return LateTool(name, self.config, find)

    async def call(self, tool: str, args: dict[str, Any], write: Callable[[str], None]) -> CallAnswer:
        """Call one of its tools by the server's own name, after connecting again if it was lost.

        Raises:
            ToolError: It cannot be reached, was lost during the call, or refused the call.
        """
        life = await self._usable()
        assert life.speaker is not None  # noqa: S101 - it is ready
        return await life.speaker.call(tool, args, write)

    async def _usable(self) -> Life:
        life = self.begin()
        if not life.ready:
            await life.settle(self.config.timeout)
        if not life.ready:
            reason = self.report.reason or f"it was not connected within {self.config.timeout:g} s"
            raise ToolError(f"MCP server {self.config.name} is not available: {reason}.")
        return life

    # ------------------------------------------------------------ the end

    async def aclose(self) -> None:
        """End the connection, and the process behind it; idempotent."""
        self._closed = True
        lives = [each for each in (*self._fading, self._life) if each]
        for life in lives:
            life.leave()
        for life in lives:
            await life.gone(LEAVE_PATIENCE)
