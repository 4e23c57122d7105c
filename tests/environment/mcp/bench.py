"""An environment with MCP servers under test, and how its calls are made and looked at."""

from __future__ import annotations

from itertools import count
from typing import Any

import anyio
import msgspec

from penguin.environment.environment import Environment
from penguin.environment.mcp.report import McpReport
from penguin.protocol.builders import tool_call
from penguin.protocol.interfaces import ToolExecutionRequest
from penguin.protocol.messages import Message, PartialToolCallOutput, ToolCallOutput, ToolDefinition
from penguin.testing.framing import assert_well_framed

OBJECT = {"type": "object"}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": OBJECT, **fields}


class Bench:
    """An environment with MCP servers only, its calls, and what it reported."""

    def __init__(self, environment: Environment, reports: list[McpReport]) -> None:
        self.environment = environment
        self.reports = reports
        self._ids = count(1)

    async def names(self) -> list[str]:
        return [each.name for each in await self.environment.list_tools()]

    async def definition(self, name: str) -> ToolDefinition:
        return next(each for each in await self.environment.list_tools() if each.name == name)

    async def call(self, name: str, /, **args: Any) -> ToolCallOutput:
        output, _ = await self.call_and_watch(name, **args)
        return output

    async def call_and_watch(self, name: str, /, **args: Any) -> tuple[ToolCallOutput, list[str]]:
        """The output, and the deltas in which it came."""
        messages: list[Message] = []
        call = tool_call(name, msgspec.json.encode(args).decode(), f"call_{next(self._ids)}")
        await self.environment.execute_tool(ToolExecutionRequest(call), messages.append)
        assert_well_framed(messages)
        complete = messages[-1].payload
        assert isinstance(complete, ToolCallOutput)
        partials = [each.payload for each in messages if isinstance(each.payload, PartialToolCallOutput)]
        return complete, [each.output for each in partials if each.event_type == "delta"]

    async def reported(self, state: str) -> McpReport:
        """Wait until a report of that state came."""
        with anyio.fail_after(10):
            while True:
                for each in self.reports:
                    if each.state == state:
                        return each
                await anyio.sleep(0.01)
