"""All MCP servers of one environment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from penguin.environment import custody
from penguin.environment.mcp.config import McpServerConfig
from penguin.environment.mcp.life import Place
from penguin.environment.mcp.naming import server_prefixes
from penguin.environment.mcp.report import McpReport, McpToolOrigin
from penguin.environment.mcp.server import McpServer
from penguin.environment.mcp.tool import LateTool, McpTool

_log = logging.getLogger("penguin.environment.mcp")


class McpServers:
    """Connects them side by side, none waiting for another; trouble is reported and never raised.

    Args:
        configs: The servers; disabled ones are left alone, but keep their names.
        workspace_dir: Where stdio servers are started, and the root that servers are told of.
        custody_dir: The ledger of harness processes, as for commands.
        vision: Whether the model takes images.
        on_report: Called with what a person should know, on the event loop's thread, perhaps from another task.
    """

    def __init__(
        self,
        configs: Sequence[McpServerConfig],
        workspace_dir: Path,
        *,
        custody_dir: Path | None = None,
        vision: bool = True,
        on_report: Callable[[McpReport], None] | None = None,
    ) -> None:
        self.on_report = on_report
        self._unseen: list[McpReport] = []
        scope = custody.of_this_process().new_scope()
        place = Place(workspace_dir, scope, custody_dir, vision)
        prefixes = server_prefixes([each.name for each in configs])
        self._servers = [McpServer(each, prefixes[each.name], place, self._tell) for each in configs if each.enabled]
        self._closed = False

    def begin(self) -> None:
        """Start to connect without waiting; :meth:`tools` does it too."""
        for server in self._servers:
            server.begin()

    async def tools(self) -> list[McpTool]:
        """What the servers offer to a new context, once each is connected, has failed, or used up its time."""
        if self._closed:
            return []
        self.begin()
        async with anyio.create_task_group() as group:
            for server in self._servers:
                group.start_soon(server.settle)
        return [tool for server in self._servers for tool in server.tools()]

    def late_tool(self, name: str) -> LateTool | None:
        """A stand-in for a tool that no server has listed yet, when the name belongs to a configured server."""
        server = next((each for each in self._servers if name.startswith(each.prefix)), None)
        return server.late_tool(name) if server else None

    def origin(self, name: str) -> McpToolOrigin | None:
        """Which server and tool a name of the model stands for, as far as it is known."""
        tools = [tool for server in self._servers for tool in server.tools() if tool.definition.name == name]
        return McpToolOrigin(tools[0].server, tools[0].original) if tools else None

    @property
    def status(self) -> list[McpReport]:
        """How each server is now."""
        return [server.report for server in self._servers]

    def take_reports(self) -> list[McpReport]:
        """What people should know and was not taken yet."""
        taken, self._unseen = self._unseen, []
        return taken

    def _tell(self, report: McpReport) -> None:
        _log.info("%s", report.words)
        self._unseen.append(report)
        if self.on_report is None:
            return
        try:
            self.on_report(report)
        except Exception:  # noqa: BLE001 - it would end the task that owns the connection
            _log.exception("a listener to MCP reports failed")

    async def aclose(self) -> None:
        """End all connections and the processes behind them; idempotent."""
        self._closed = True
        async with anyio.create_task_group() as group:
            for server in self._servers:
                group.start_soon(server.aclose)
