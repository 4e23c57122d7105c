"""What people are told about MCP servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

McpState: TypeAlias = Literal["idle", "starting", "connected", "slow", "failed"]
"""``slow``: it did not connect within its time; it is still waited for, and joins at the next context."""


@dataclass(frozen=True, slots=True)
class McpReport:
    """The state of one server. ``reason`` says in words why it is not connected; ``tools`` counts what it offers.

    Example::

        McpReport("search", "failed", "the command 'serch' was not found")
    """

    server: str
    state: McpState
    reason: str | None = None
    tools: int = 0

    @property
    def words(self) -> str:
        """One line for a person."""
        match self.state:
            case "connected":
                return f"MCP server {self.server}: connected, {self.tools} tools"
            case "slow":
                return f"MCP server {self.server}: {self.reason}; its tools join at the next context"
            case "failed":
                return f"MCP server {self.server}: {self.reason}; its tools are missing"
            case _:
                return f"MCP server {self.server}: {self.state}"


@dataclass(frozen=True, slots=True)
class McpToolOrigin:
    """Where a tool comes from: the server as configured, the tool as the server calls it (D32)."""

    server: str
    tool: str
