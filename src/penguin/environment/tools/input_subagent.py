"""``input_subagent``: listen to a child, or give it another task."""

from __future__ import annotations

from typing import Any

from penguin.environment.subagents import subagents
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolError, ToolResult, ToolSetup
from penguin.environment.tools.run_subagent import DEFAULT_YIELD_MS, answer_of


class InputSubagent:
    """Waits for a working child; with a prompt it starts an idle one again."""

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._children = subagents(setup)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Follow up or poll.

        Raises:
            ToolError: no such subagent, or it is busy and cannot take a prompt.
        """
        child = self._children.find(args["subagent_id"])
        prompt = args.get("prompt")
        if prompt and child.busy:
            raise ToolError(f"Subagent {child.id} is still working; a new prompt is taken when it has finished.")
        if prompt:
            child.start(prompt, ctx.approve)
        return await answer_of(child, args.get("yield_time_ms", DEFAULT_YIELD_MS) / 1000, ctx, in_front=bool(prompt))
