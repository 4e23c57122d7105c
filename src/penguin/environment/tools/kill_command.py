"""``kill_command``: end a background command."""

from __future__ import annotations

from typing import Any

from penguin.environment.exit_words import exit_words
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolError, ToolResult, ToolSetup
from penguin.environment.tools.exec_command import command_sessions


class KillCommand:
    """TERM to everything the command started, KILL after a grace period; its id is then forgotten."""

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._sessions = command_sessions(setup)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """End it, and return what it still had to say.

        Raises:
            ToolError: There is no such process, or something of it could not be ended.
        """
        command = self._sessions.find(args["process_id"])
        async with self._sessions.turn_with(command):
            self._sessions.take_back(command)  # or its end would be reported as news
            ended = await self._sessions.end(command)
            command.deliver_the_rest(ctx.write)
            if not ended:
                self._sessions.leave(command)
                raise ToolError(f"Process {command.process_id} could not be ended completely.")
            self._sessions.forget(command)
        words = "" if command.returncode is None else f", {exit_words(command.returncode)}"
        return ToolResult(note=f"[process {command.process_id} has ended{words}]")
