"""``kill_subagent``: end a child and everything it runs."""

from __future__ import annotations

from typing import Any

from penguin.environment.subagents import subagents
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolResult, ToolSetup


class KillSubagent:
    """Stops a child and releases its session; its trace stays."""

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._children = subagents(setup)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """End it.

        Raises:
            ToolError: no such subagent.
        """
        child = self._children.find(args["subagent_id"])
        was_busy = child.busy
        await self._children.kill(child)
        ctx.write(child.so_far())
        return ToolResult(note=f"[subagent {child.id} {'was stopped and ' if was_busy else ''}is gone]")
